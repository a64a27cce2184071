// Calls that have two plans (plain_choice.hpp): what their records say, and what is noted for the
// next ones.
#include <cstddef>

#include "runtime/executor.hpp"

namespace tutti::runtime {

// The call as it is made by another plan than its usual one, which its record then says, too.
void Executor::tell_of(const collectives::Plan& plan, const collectives::Plan& usual) {
  call_.signature.direct = plan.settings.direct;
  call_.signature.plan_hash ^= usual.hash ^ plan.hash;
  encode_signature(call_.signature, call_.record);
}

// What the next such calls are chosen by. Without addresses exchanged, only rank 0 asks, whose
// word it is.
void Executor::note_plain() {
  if (!uses_plain_plan_) return plain_choice_.met(own_is_plain_, meets_plain_);
  if (transport_.rank() != 0) return;
  Endpoint& any = *stream(0, 0).endpoint;
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    const std::size_t bytes = buffer_bytes(buffer);
    own_is_plain_ |= bytes > 0 && !any.export_memory(own_memory(buffer), bytes).addressable();
  }
  plain_choice_.met_by_plain_plan(own_is_plain_);
}

}  // namespace tutti::runtime

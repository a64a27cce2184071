// Plans that are made in one way in calls of even numbers and in another in odd ones (Plan::odd).
// Such calls follow each other, and laying out a call takes longer than making it; so what is laid
// out for the one stays while the other one is made, and the two are exchanged.
#include <utility>

#include "collectives/footprint.hpp"
#include "runtime/executor.hpp"

namespace tutti::runtime {

auto Executor::turn_of(const Call& call, const collectives::Plan& plan) -> const SharedProgram& {
  return plan.odd != nullptr && call.signature.sequence % 2 != 0 ? plan.odd : plan.program;
}

// Whether it is the call before the latest one that this one is like. Then all is laid out for it.
bool Executor::repeats_twin(const Call& call, const collectives::Plan& plan,
                            const SharedProgram& program) {
  if (plan.odd == nullptr || twin_.lowered == nullptr || twin_.lowered != program) return false;
  if (!repeats(call, plan, lowered_)) return false;
  exchange_twins();
  return true;
}

// To be asked before a call is laid out. It is kept what was laid out for the latest one, if this
// one differs from it by nothing but its turn.
void Executor::keep_as_twin(const Call& call, const collectives::Plan& plan,
                            const SharedProgram& program) {
  twin_.lowered.reset();
  const SharedProgram& other = program == plan.program ? plan.odd : plan.program;
  const bool alternates = plan.odd != nullptr && !plan.settings.direct && !short_->empty();
  if (alternates && repeats(call, plan, other)) exchange_twins();
}

// All else that is laid out is alike: both have the same shape.
void Executor::exchange_twins() {
  std::swap(lowered_, twin_.lowered);
  std::swap(program_, twin_.program);
  std::swap(short_, twin_.steps);
  std::swap(round_, twin_.round);
  std::swap(told_alike_, twin_.told_alike);
  std::swap(call_streams_, twin_.streams);
  std::swap(peers_, twin_.peers);
}

std::size_t Executor::Twin::memory_bytes() const {
  using collectives::bytes_of;
  return steps->memory_bytes() + round->memory_bytes() + bytes_of(told_alike) + bytes_of(streams) +
         bytes_of(peers);
}

}  // namespace tutti::runtime

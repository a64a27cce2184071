// Copies from and to plain memory of other processes, which this one cannot load or store, but have
// the system copy (Endpoint::attached). To the program (lowered.hpp) such memory is addressable,
// and messages travel direct; only point 4 of a step is another.
//
// Whether it is worth it, the rank that leads finds out by going both ways, as with copies that are
// loaded or stored, and in the same word (pull_choice.hpp). Only calls that copy do it. Sums would
// need memory of their own to copy into, and queues are as quick.
#include <algorithm>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "runtime/executor.hpp"

namespace tutti::runtime {
namespace {

// Of a block. Below, the system's copy costs more by being called than it spares.
constexpr std::size_t kAttachedBytes = std::size_t{16} << 10;

}  // namespace

// The same on all ranks of the call. All must hear the leader's word: there are two of them, or the
// schedule is one in which all meet all.
bool Executor::may_attach(const Call& call, const collectives::Plan& plan) const {
  const Signature& signature = call.signature;
  const bool copies =
      !is_reduction(signature.collective) && signature.collective != Collective::send_recv;
  return transport_attaches_ && signature.direct && copies && !signature.varied &&
         (transport_.size() == 2 || plan.pulled != nullptr) &&
         signature.count * size_of(signature.type) >= kAttachedBytes;
}

// From source_pointers_ to all destinations. What is attached at both ends is copied by way of this
// rank's own memory, where a program that brings it there wants it anyway.
void Executor::copy_attached(std::size_t bytes) {
  for (std::byte* far : far_pointers_.all()) destination_pointers_.add(far);
  const auto own = destination_pointers_.all();
  const std::byte* from = source_pointers_.front();
  std::size_t filled = 0;
  if (attached_source_ != nullptr) {
    TUTTI_ASSERT(!own.empty(), "what is read from another process is kept");
    const auto there = reinterpret_cast<std::uintptr_t>(from);
    if (!copied(attached_source_->read_attached(own.front(), there, bytes))) return;
    from = own.front();
    filled = 1;
  }
  for (const auto& [endpoint, to] : attached_destinations_)
    if (!copied(endpoint->write_attached(reinterpret_cast<std::uintptr_t>(to), from, bytes)))
      return;
  if (filled < own.size())
    kernels::copy(from, own.subspan(filled), bytes,
                  streaming_ ? kernels::StoreHint::streaming : kernels::StoreHint::cached);
}

// A peer that has failed may have taken its memory back, or be gone.
bool Executor::copied(const Status& status) {
  if (status.ok()) return true;
  if (!hear_of_failures())
    fail(status.with_context(
        fmt::format("rank {}: {}", transport_.rank(), to_string(call_.signature))));
  return false;
}

}  // namespace tutti::runtime

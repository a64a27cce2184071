// strict.hpp: a call before the call, in which the ranks show each other what they are about to
// call. Whoever calls something else is found before anybody's output is written, and all ranks
// say so alike.
//
// Costs an all_gather of 32 bytes a call; so it is for finding mistakes (TUTTI_CHECK=strict).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor.hpp"
#include "tutti/status.hpp"

namespace tutti::runtime {

class StrictCheck {
 public:
  // What the call before the call is planned for.
  static constexpr std::size_t kCount = kArrivalBytes;
  static constexpr DataType kType = DataType::uint8;

  StrictCheck(Rank rank, int size);

  // An all_gather to run by `plan`, the same on all ranks. Lifetime  until the next begin().
  Call begin(const Signature& mine, const collectives::Plan& plan);

  // Once it is complete: ok, or mismatch with both sides.
  Status verdict() const;

 private:
  std::span<const std::byte> record(Rank rank) const {
    return std::span(all_).subspan(static_cast<std::size_t>(rank) * kArrivalBytes, kArrivalBytes);
  }

  Rank rank_;
  int size_;
  std::uint32_t sequence_ = 0;
  Signature shown_;  // of the call to be made, and
  std::array<std::byte, kArrivalBytes> mine_{};
  std::vector<std::byte> all_;
};

}  // namespace tutti::runtime

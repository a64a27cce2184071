// token_bucket.hpp: the arithmetic of a link of limited speed: in any stretch of t seconds at most
// bucket + speed * t bytes pass. What comes too fast passes later.
//
// Knows no clock: whoever asks says what time it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::kit {

// Instead of counting tokens it keeps the time at which the bucket will be full again, which needs
// no refilling. Source: the virtual scheduling form of the generic cell rate algorithm, ITU-T
// Recommendation I.371.
//
// Threading  one thread at a time. Units: ns, of any clock that does not go back.
class TokenBucket {
 public:
  // Requires  bytes_per_s > 0, bucket_bytes >= 0, up to 2^32 each.
  TokenBucket(std::int64_t bytes_per_s, std::int64_t bucket_bytes)
      : bytes_per_s_(bytes_per_s), depth_ns_(bucket_bytes * kNanoseconds / bytes_per_s) {}

  // When all of what comes at `now_ns` has passed, behind what came before it.
  // Requires  bytes < 2^32.
  std::int64_t pass(std::int64_t now_ns, std::size_t bytes) {
    latest_ns_ = std::max(latest_ns_, now_ns);
    const std::int64_t cost = static_cast<std::int64_t>(bytes) * kNanoseconds;
    full_at_ns_ = std::max(full_at_ns_, latest_ns_) + (cost + bytes_per_s_ - 1) / bytes_per_s_;
    return std::max(latest_ns_, free_at_ns());
  }

  // From when on nothing that came waits any more.
  std::int64_t free_at_ns() const { return full_at_ns_ - depth_ns_; }

 private:
  static constexpr std::int64_t kNanoseconds = 1'000'000'000;

  std::int64_t bytes_per_s_;
  std::int64_t depth_ns_;  // how long an empty bucket takes to fill
  std::int64_t full_at_ns_ = 0;
  std::int64_t latest_ns_ = 0;
};

}  // namespace tutti::kit

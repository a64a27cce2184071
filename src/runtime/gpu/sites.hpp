// sites.hpp: every place where one rank tells another something by a store with release, or hears
// of it by a load with acquire. A list, so that tests can weaken any one of them and see that it is
// missed.
#pragma once

#include <cstdint>

namespace tutti::runtime::gpu {

enum class Site : std::uint8_t {
  arrival_post,  // the arrival record is complete
  arrival_see,
  offered_post,  // what may be pulled is complete
  offered_see,
  taken_post,  // what was pulled has been read
  taken_see,
  granted_post,  // the own memory may be stored to
  granted_see,
  produced_post,  // what was pushed is complete
  produced_see,
  filled_post,  // a message stands in its slot
  filled_see,
  freed_post,  // the message in a slot has been read
  freed_see,
  word_post,  // low latency: a word with its flag
  word_see,
  word_freed_post,  // low latency: all words of a message have been read
  word_freed_see,
  error_post,  // the error record is complete
  error_see,
  visit_post,  // a block touches no region any more
  visit_see,
  gate_post,  // all peers have mapped a region
  gate_see,
  sent_post,  // a message of a transfer stands in its slot, or what it offers is complete
  sent_see,
  received_post,  // a message of a transfer has been read
  received_see,
};
inline constexpr int kSiteCount = 28;

inline constexpr const char* kSiteNames[kSiteCount] = {
    "arrival_post", "arrival_see",     "offered_post",   "offered_see",   "taken_post",
    "taken_see",    "granted_post",    "granted_see",    "produced_post", "produced_see",
    "filled_post",  "filled_see",      "freed_post",     "freed_see",     "word_post",
    "word_see",     "word_freed_post", "word_freed_see", "error_post",    "error_see",
    "visit_post",   "visit_see",       "gate_post",      "gate_see",      "sent_post",
    "sent_see",     "received_post",   "received_see"};

}  // namespace tutti::runtime::gpu

// options.hpp: what every transport is told when a communicator makes it.
//
// Knows nothing of any one transport; each folder reads the fields that concern it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

struct TransportOptions {
  Rank rank = 0;
  int size = 1;
  int channel_count = 1;
  std::size_t frame_bytes_max = 64 * 1024;  // payload of one frame
  std::size_t queue_bytes = 256 * 1024;     // payload room per directed connection
  bool reuse_late = false;    // queues go through all their memory before they reuse it
  std::uint64_t context = 0;  // tells communicators of one world apart
  std::string job_secret;     // proves that a peer belongs to the job; may be empty
  std::string bind_address = "127.0.0.1";  // where sockets listen
  bool ranks_share_cores = false;          // more ranks than cores on this host
  bool share_in_place = false;             // plain memory is made shareable where it lies
  bool attach = true;                      // plain memory is copied by the system, if it can
  std::chrono::milliseconds setup_timeout{30'000};  // to find the other ranks
  std::function<Status()>
      bad_news;  // asked while waiting for others: ok, or who died; may be empty
};

}  // namespace tutti::transport

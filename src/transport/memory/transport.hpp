// transport.hpp: ranks that are threads of one process. Queues lie in ordinary memory, and every
// address of one rank is an address of the others, so that all memory can be used directly.
//
// Does not know processes, sockets or files.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/options.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport {

// What the ranks of one such world share: doorbells, and the queues as they come into being.
//
// Lifetime   as long as any of its transports.
// Threading  make it once, hand it to all threads.
class MemoryWorld {
 public:
  // Reads size, channel_count, frame_bytes_max and queue_bytes; `rank` means nothing here.
  static std::shared_ptr<MemoryWorld> make(const TransportOptions& options);

  virtual ~MemoryWorld() = default;
  virtual int size() const = 0;

 protected:
  MemoryWorld() = default;
};

// The connections of one rank of `world`.
// Requires  0 <= rank < world->size(); one transport per rank.
std::unique_ptr<Transport> make_memory_transport(std::shared_ptr<MemoryWorld> world, Rank rank);

}  // namespace tutti::transport

// board.hpp: the doorbells of all ranks of one communicator, in one memory file. Rank 0 makes it
// and hands it out while the transports are made, so that every rank can wake every other, and say
// "look at your sockets", before the two have ever talked. Beside them stands what ranks say of
// each other's plain memory (attach.hpp), the words in which they agree on things, and memory for
// what they work on together.
//
// Does not know how it is handed out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/fifo/doorbell.hpp"
#include "transport/shm/attach.hpp"
#include "transport/shm/file.hpp"
#include "tutti/transport.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::shm {

class Board {
 public:
  explicit Board(Mapping mapping) : mapping_(std::move(mapping)) {}

  static std::size_t bytes(int size) {
    return head_bytes(size) + static_cast<std::size_t>(size) * kSharedBytesEach;
  }
  // Without the shared memory, whose pages come when they are touched.
  static std::size_t head_bytes(int size) {
    const std::size_t bytes =
        static_cast<std::size_t>(size) * (sizeof(fifo::Doorbell) + sizeof(AttachSeat)) +
        kSharedWordCount * sizeof(std::atomic<std::uint64_t>);
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  // A file of zeros is a board where nobody sleeps and nobody left.
  fifo::Doorbell& doorbell(Rank rank) const {
    return reinterpret_cast<fifo::Doorbell*>(mapping_.base())[rank];
  }

  // By rank, of a board for `size` ranks.
  AttachSeat* attach_seats(int size) const {
    return reinterpret_cast<AttachSeat*>(mapping_.base() +
                                         static_cast<std::size_t>(size) * sizeof(fifo::Doorbell));
  }

  // As Transport::shared_words(), of a board for `size` ranks.
  std::span<std::atomic<std::uint64_t>> shared_words(int size) const {
    auto* const end = reinterpret_cast<std::byte*>(attach_seats(size) + size);
    return {reinterpret_cast<std::atomic<std::uint64_t>*>(end), kSharedWordCount};
  }

  // As Transport::shared_memory(), of a board for `size` ranks.
  std::span<std::byte> shared_memory(int size) const {
    return {mapping_.base() + head_bytes(size), bytes(size) - head_bytes(size)};
  }

  // Makes `rank` look at its sockets.
  void announce_mail(Rank rank) const {
    doorbell(rank).mail.fetch_add(1, std::memory_order_release);
    fifo::ring(doorbell(rank));
  }

  bool left(Rank rank) const { return doorbell(rank).left.load(std::memory_order_acquire) != 0; }

 private:
  static constexpr std::size_t kPageBytes = 4096;

  Mapping mapping_;
};

}  // namespace tutti::transport::shm

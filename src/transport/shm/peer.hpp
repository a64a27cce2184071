// peer.hpp: the sockets between this rank and one other, and what passed over them: files of queues
// and of memory regions, both ways.
//
// There are up to two connections: ours, opened when we first have something to send, and the
// peer's. Each carries messages one way only, so that two ranks that connect at the same moment
// need no rule about who wins. Both stay open, because their breaking is how the kernel tells that
// a process died; a descriptor of the process itself tells even if a child of it keeps them open.
//
// Does not know endpoints: queues that arrived wait here until the transport takes them.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/fifo/queue.hpp"
#include "transport/shm/board.hpp"
#include "transport/shm/heap.hpp"
#include "transport/shm/sparse.hpp"
#include "transport/shm/wire.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::shm {

// What all connections of one transport have in common.
struct Self {
  Rank rank = 0;
  int channel_count = 1;
  std::uint64_t context = 0;
  std::string secret;
  Address address;
  fifo::Layout layout;
  fifo::Reuse reuse = fifo::Reuse::soon;
  Board board;
};

class Peer {
 public:
  // A queue whose frames come to us.
  struct ArrivedQueue {
    int channel = 0;
    Mapping memory;
  };

  // Lifetime  of `self`: longer than this.
  Peer(const Self& self, Rank rank, Address address)
      : self_(&self), rank_(rank), address_(std::move(address)) {}

  Rank rank() const { return rank_; }
  // "rank 3 (pid 4711)", for error messages.
  std::string name() const;

  // Hands the peer the queue that we send through. False: the socket is busy, try again.
  // Errors  peer_lost, system_error.
  Result<bool> send_queue(int channel, const Descriptor& file);

  // As Endpoint. Sends the region's file when the peer does not have it. With `in_place`, memory
  // that is in no region is made one if it can be.
  MemoryReference export_memory(const void* memory, std::size_t bytes, bool in_place);
  std::byte* import_memory(const MemoryReference& reference, std::size_t bytes);
  std::uint64_t import_generation() const { return import_generation_; }

  // Tells the peer which of the regions that it was sent are gone.
  void withdraw_freed_regions();

  // Takes over the peer's connection, whose first message was in order. False when it has one.
  bool adopt(Descriptor socket);

  // Reads all that the peer has sent. Errors: corrupt_data, system_error.
  Status receive();
  std::vector<ArrivedQueue> take_queues() { return std::exchange(arrived_, {}); }

  // What to watch with poll(2), which passes over -1, the number of what is closed.
  int incoming() const { return incoming_.number(); }
  int outgoing() const { return outgoing_.number(); }
  int process() const { return process_.number(); }
  bool connected() const { return incoming_.open() || outgoing_.open(); }
  void hang_up();

 private:
  Result<bool> connect();
  Result<bool> send(Message message, int file);
  Status take(Received received);
  Status take_queue(const Message& message, const Descriptor& file);
  Status check_new(std::uint32_t region) const;
  Status take_region(const Message& message, const Descriptor& file);
  Status take_sparse_region(const Message& message, Descriptor file);
  std::byte* find_imported(const MemoryReference& reference, std::size_t bytes);

  const Self* self_;
  Rank rank_;
  Address address_;
  Descriptor outgoing_;
  Descriptor incoming_;
  Descriptor process_;
  bool said_hello_ = false;
  std::vector<ArrivedQueue> arrived_;
  std::unordered_set<std::uint32_t> exported_;
  std::unordered_map<std::uint32_t, Mapping> imported_;
  std::unordered_map<std::uint32_t, SparseFile> sparse_;
  std::uint64_t import_generation_ = 1;  // counts what is not mapped any more
};

}  // namespace tutti::transport::shm

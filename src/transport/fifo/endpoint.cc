// endpoint.cc: what happens to an endpoint off the hot path: failures and departures.
#include "transport/fifo/endpoint.hpp"

#include <string>

#include "transport/fifo/outbox.hpp"

namespace tutti::transport::fifo {

void QueueEndpoint::fail(const Status& status) {
  if (failed()) return;
  status_ = status;
  producer_.close();
  consumer_.close();
}

void QueueEndpoint::fail_corrupt() {
  fail(Status(StatusCode::corrupt_data,
              "the queue shared with rank " + std::to_string(peer_) + " holds nonsense", peer_));
}

bool QueueEndpoint::may_post(const Outbox& outbox) {
  if (peer_left_) return false;
  const bool room = producer_.may_post();
  if (producer_.corrupt()) [[unlikely]]
    fail_corrupt();
  if (!room) return false;
  if (announced_) [[likely]]
    return true;
  const MemoryReference reference = export_memory(outbox.memory(), outbox.bytes());
  if (!reference.addressable()) return false;
  producer_.announce(reference);
  announced_ = true;
  return true;
}

// The peer was able to show it before it sent a frame in it.
bool QueueEndpoint::find_outbox() {
  const std::size_t bytes = Outbox::bytes_of(consumer_.layout());
  std::byte* const memory = import_memory(consumer_.outbox(), bytes);
  if (memory != nullptr)
    consumer_.attach_outbox(memory, bytes);
  else
    fail_corrupt();
  return memory != nullptr;
}

// A rank that has done its part may leave before the others have read what it sent, and they may
// still answer it; nobody will read that. But when nothing of it is left to read either, then who
// sends to it counts on a rank that is gone.
std::span<std::byte> QueueEndpoint::send_to_one_who_left(std::span<std::byte> room) {
  if (consumer_.readable()) return room;
  fail(Status(StatusCode::peer_lost,
              "rank " + std::to_string(peer_) + " has left: it closed its communicator", peer_));
  return {};
}

}  // namespace tutti::transport::fifo

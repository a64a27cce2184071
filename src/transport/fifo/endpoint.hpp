// endpoint.hpp: the half of an Endpoint that is the same for threads and for processes: one queue
// out, one queue in, the peer's doorbell, and a status.
//
// Does not know how the queues came to be shared, nor how a peer's memory is addressed; the memory
// and shm transports add that.
#pragma once

#include "transport/fifo/doorbell.hpp"
#include "transport/fifo/queue.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::fifo {

class Outbox;

class QueueEndpoint : public Endpoint {
 public:
  // Lifetime  of the doorbell: longer than this.
  QueueEndpoint(Rank peer, Doorbell& doorbell) : peer_(peer), doorbell_(doorbell) {}

  void share_core() final { producer_.share_core(); }
  std::span<std::byte> reserve(std::size_t bytes) final {
    std::byte* const borrowed = producer_.is_long(bytes) ? consumer_.borrow(bytes) : nullptr;
    const std::span<std::byte> room = borrowed != nullptr
                                          ? producer_.reserve_on_loan({borrowed, bytes})
                                          : producer_.reserve(bytes);
    if (producer_.corrupt() || consumer_.corrupt()) [[unlikely]]
      fail_corrupt();
    return peer_left_ ? send_to_one_who_left(room) : room;
  }
  void commit(std::uint32_t tag, std::size_t bytes) final {
    if (producer_.is_on_loan()) [[unlikely]]
      consumer_.use_loan();
    producer_.commit(tag, bytes);
    ring(doorbell_);
  }
  bool send(std::uint32_t tag, std::span<const std::byte> head,
            std::span<const std::byte> body) final {
    if (peer_left_ || !producer_.fits_cell(head.size(), body.size())) [[unlikely]]
      return Endpoint::send(tag, head, body);
    const bool sent = producer_.send(tag, head, body);
    if (producer_.corrupt()) [[unlikely]]
      fail_corrupt();
    ring(doorbell_);
    return sent;
  }
  bool peek(Frame& frame) final {
    if (consumer_.peek(frame)) return true;
    if (consumer_.wants_outbox()) [[unlikely]]
      return find_outbox() && peek(frame);
    if (consumer_.corrupt()) [[unlikely]]
      fail_corrupt();
    return false;
  }
  void release() final {
    producer_.hear_released(consumer_.told());
    if (producer_.corrupt()) [[unlikely]]
      fail_corrupt();
    consumer_.release();
    producer_.tell_released(consumer_.taken());
    ring(doorbell_);
  }
  void signal(Signal which, std::uint64_t value) final {
    producer_.signal(which, value);
    ring(doorbell_);
  }
  std::uint64_t signalled(Signal which) final { return consumer_.signalled(which); }
  Status status() const final { return status_; }

  // Of a frame in this rank's outbox (outbox.hpp). True when the peer can be told of it now.
  bool may_post(const Outbox& outbox);
  void post(std::uint32_t tag, std::size_t bytes, std::uint32_t line) {
    producer_.post(tag, bytes, line);
    ring(doorbell_);
  }
  std::uint64_t sent() const { return producer_.sent(); }
  // A place of the outbox, and which line of it that is, for the peer's next long frame.
  // Requires  the peer was told of a frame in it; !lends().
  void lend(std::span<std::byte> place, std::uint32_t line) {
    if (failed()) return;
    consumer_.lend(place);
    producer_.lend(line);
  }
  bool lends() const { return consumer_.lends(); }
  bool has_on_loan(const std::byte* place) const { return consumer_.has_lent(place); }
  // The frame that is shown, if it lies in such a place.
  std::span<std::byte> shown_on_loan() const { return consumer_.shown_on_loan(); }
  bool is_released(std::uint64_t frame) { return producer_.is_released(frame); }

  Rank peer() const { return peer_; }
  bool failed() const { return !status_.ok(); }

  // True once for everything that the peer did and that the executor was not shown yet.
  bool news() {
    const bool arrived = consumer_.news();
    return producer_.room_appeared() || arrived;
  }

  // Ends this connection with `status`, unless it has failed already.
  void fail(const Status& status);

  // The peer closed its transport in good order, and its queue, if it had one, is attached: what
  // it sent can still be read.
  void peer_left() { peer_left_ = true; }

 protected:
  Producer producer_;
  Consumer consumer_;

 private:
  void fail_corrupt();
  bool find_outbox();
  std::span<std::byte> send_to_one_who_left(std::span<std::byte> room);

  Rank peer_;
  Doorbell& doorbell_;
  Status status_;
  bool peer_left_ = false;
  bool announced_ = false;  // our outbox, to the peer
};

}  // namespace tutti::transport::fifo

// endpoint.hpp: what one rank and one other have with each other on one channel: a queue of frames
// each way, and signals.
//
// Knows links and rings; does not know when it is its turn, or what the end of a link means
// (transport.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/ucx/link.hpp"
#include "transport/ucx/ring.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::ucx {

// What came with a record. Data of a long one are still with the sender: `data` is UCX's handle.
struct Arrival {
  RecordHeader header;
  std::span<const std::byte> lent_head;
  void* data = nullptr;
  std::size_t bytes = 0;
  bool is_remote = false;
};

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(Mesh& mesh, Link& link, int channel);

  std::span<std::byte> reserve(std::size_t bytes) override;
  void commit(std::uint32_t tag, std::size_t bytes) override;
  bool peek(Frame& frame) override;
  void release() override;
  bool send_lent(std::uint32_t tag, std::span<const std::byte> head,
                 const LentPlace& body) override;
  std::uint64_t lent_read() override;
  bool fetch(const LentPlace& place) override;
  std::uint64_t fetched() override;
  void signal(Signal which, std::uint64_t value) override;
  std::uint64_t signalled(Signal which) override { return heard_[static_cast<std::size_t>(which)]; }
  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  Status status() const override { return status_; }

  // ---- For the transport ----

  // This rank wants the connection.
  void want();
  // The peer does and this rank has not said so.
  bool called() const { return met_ && !wanted_ && status_.ok(); }

  // Takes a genuine record of this channel. True when the data of a long one are being fetched, or
  // will be.
  bool hear(const Arrival& arrival);

  // Says what is due. Requires  nobody is inside of UCX.
  void speak();
  bool has_to_speak() const;
  // Before this rank sleeps: asks for the room that it waits for.
  void ask_for_room();

  void fail(const Status& status);
  void corrupt(std::string_view what);

  // Everything said has left, or nobody wants it any more.
  bool flushed() const { return !status_.ok() || link_.left() || link_.lost() || !raised_; }
  // Nothing of the peer's lent memory is being fetched, or it will not come.
  bool has_fetched() const;
  // Lets go of what nobody has fetched. Requires  UCX's worker is there.
  void drop_unfetched();
  // UCX may still read what was committed, for the peer: it must stay.
  void abandon_memory() { outbox_.abandon(); }

  std::size_t memory_bytes() const {
    return sizeof(*this) + outbox_.memory_bytes() + inbox_.memory_bytes() + discarded_.size();
  }

  bool listed = false;  // among the talkative

 private:
  static constexpr std::size_t kControls = 4;
  // A record that is no frame, while UCX has it.
  struct Control {
    Sending sending;
    SignalValues values{};
  };
  // The number of a frame whose data are being fetched.
  struct Fetch {
    UcxEndpoint* endpoint = nullptr;
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    void finish(ucs_status_t status, std::size_t got);
  };
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* fetch);
  // The same for lent memory.
  struct LentFetch {
    UcxEndpoint* endpoint = nullptr;
    Lent* lent = nullptr;
    std::size_t bytes = 0;
    bool is_over = false;
    bool is_there = false;  // all of it
    void finish(ucs_status_t status, std::size_t got);
  };
  static void on_fetched_lent(void* request, ucs_status_t status, std::size_t bytes, void* fetch);
  // Lent bytes that a peer has announced: UCX's handle.
  struct Announced {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  bool peer_is_of_use();
  void settle();
  bool credit(std::uint64_t released);
  bool hear_frame(const Arrival& arrival);
  bool begin_fetch(const Arrival& arrival, std::byte* place);
  std::byte* admit(const RecordHeader& header, std::size_t bytes);
  bool hear_lent(const Arrival& arrival);
  void drop(const Announced& announced);
  void send_frame(RecordKind kind, std::uint32_t tag, const Outbox::Sent& sent,
                  const Payload& payload);
  bool hear_news(const Arrival& arrival);
  bool room_due() const { return inbox_.owes() || (asked_ && !inbox_.all_told()); }
  bool say(RecordKind kind);
  void note_told();
  void list();

  Mesh& mesh_;
  const Functions& f_;  // the worker's end calls back, too
  Link& link_;
  int channel_;
  Status status_;
  bool wanted_ = false;
  bool met_ = false;

  Outbox outbox_;
  std::array<Sending, kFramesMax> frames_out_;
  std::uint64_t peer_released_ = 0;  // as it says
  std::uint64_t settled_ = 0;        // of them, and UCX has done with them, too
  bool hello_due_ = false;
  bool raised_ = false;   // a signal that the peer has not been told
  bool ask_due_ = false;  // this rank waits for room
  int misses_ = 0;        // in a row, for lack of room
  // What the peer had released when it was asked for more.
  std::uint64_t asked_at_ = ~std::uint64_t{0};
  std::array<Control, kControls> controls_;
  SignalValues values_{};

  Inbox inbox_;
  std::array<Fetch, kFramesMax> fetches_;
  std::deque<std::uint64_t> lent_out_;  // frames of send_lent(), by number, that lent_read() has
  std::uint64_t lent_read_ = 0;         // not counted, and that it has
  std::map<std::uint64_t, Announced> announced_;  // by frame
  std::deque<LentFetch> fetches_lent_;            // whose addresses stay; not counted by fetched()
  std::uint64_t fetched_ = 0;
  bool asked_ = false;  // the peer waits for room
  SignalValues heard_{};
  std::vector<std::byte> discarded_;  // what is said to a rank that left
};

}  // namespace tutti::transport::ucx

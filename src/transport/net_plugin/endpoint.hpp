// endpoint.hpp: a rank's two connections with one peer on one channel, one for each direction, and
// what their ends mean.
//
// Whoever is called calls back, so that each side can tell the other how many frames it has
// released, and sees it die. A rank may leave in good order before others have read what it sent; a
// rank that is gone without a goodbye has died. Knows inlets and outlets; does not know when it is
// its turn (transport.cc).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net_plugin/inlet.hpp"
#include "transport/net_plugin/mesh.hpp"
#include "transport/net_plugin/outlet.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::net_plugin {

class NetEndpoint final : public Endpoint {
 public:
  NetEndpoint(Mesh& mesh, Rank peer, int channel);

  std::span<std::byte> reserve(std::size_t bytes) override;
  void commit(std::uint32_t tag, std::size_t bytes) override;
  bool peek(Frame& frame) override;
  void release() override;
  void signal(Signal which, std::uint64_t value) override;
  std::uint64_t signalled(Signal which) override { return heard_[static_cast<std::size_t>(which)]; }
  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  Status status() const override { return status_; }

  // ---- For the transport ----

  Rank peer() const { return peer_; }

  // Where this peer can connect; once.
  Result<Handle> listen() { return inlet_.listen(); }

  // This rank wants the connection.
  void want();
  // The peer does and this rank has not said so.
  bool called() const { return met_ && !wanted_ && status_.ok(); }
  // There is something to move.
  bool active() const { return outlet_.opened() || inlet_.accepted(); }

  // Moves what can be moved. True when anything did.
  bool move();

  // A connection has ended, and what that means depends on what is still to be heard.
  bool awaits_verdict() const {
    return status_.ok() && !left_ &&
           (failed_words_.has_value() || outlet_.lost() || (inlet_.lost() && met_));
  }
  // The peer has said itself why.
  bool was_told() const { return failed_words_.has_value(); }
  void judge();

  // Everything committed has left, or nobody wants it any more.
  bool flushed() const {
    return !status_.ok() || left_ || outlet_.lost() || (!raised_ && outlet_.flushed());
  }
  // Says the last words. True when all that can be said has left.
  bool part(const Status& failure);
  // Somebody has connected and not said yet who it is.
  bool being_greeted() const { return inlet_.accepted() && !met_ && status_.ok(); }

  std::size_t memory_bytes() const {
    return sizeof(*this) + outlet_.memory_bytes() + inlet_.memory_bytes() + discarded_.size();
  }

 private:
  void open();
  bool hear();
  bool hear_records();
  bool speak();
  void hear_record(const Record& record);
  void meet(const Record& record);
  void turn_away();
  bool keep_frame(const Record& record);
  bool hear_news(const Record& record);
  void fail(const Status& status);
  void corrupt(std::string_view what);
  void lose(const std::string& text);
  bool waited_for_news();
  bool peer_is_of_use();

  Mesh& mesh_;
  Rank peer_;
  int channel_;
  Outlet outlet_;
  Inlet inlet_;
  Status status_;

  bool wanted_ = false;
  bool met_ = false;   // the peer has proved who it is
  bool left_ = false;  // and has said goodbye
  bool parted_ = false;
  int strangers_ = 0;
  std::optional<std::uint32_t> failed_words_;  // of a peer that gave up

  std::deque<Record> frames_;  // arrived, and not released
  std::uint64_t released_ = 0;
  std::uint64_t told_ = 0;  // of them
  SignalValues values_{};
  SignalValues heard_{};
  bool raised_ = false;               // a signal that the peer has not been told
  std::vector<std::byte> discarded_;  // what is said to a rank that left
  std::optional<std::chrono::steady_clock::time_point> ended_;
};

}  // namespace tutti::transport::net_plugin

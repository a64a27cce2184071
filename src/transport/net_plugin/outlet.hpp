// outlet.hpp: the connection on which a rank speaks to a peer: a ring of slots for frames, and a
// few small ones for what is said beside them, so that neither waits for the other's room.
//
// Records leave in the order in which they were filled. The plugin may take none at the moment;
// then the oldest is offered again at the next move(). Knows Device and wire.hpp; does not know
// who the peer is (endpoint.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/net_plugin/block.hpp"
#include "transport/net_plugin/wire.hpp"

namespace tutti::transport::net_plugin {

class Outlet {
 public:
  Outlet(Device& device, std::size_t frame_bytes_max, std::size_t frames)
      : device_(device), slot_bytes_(slot_bytes(frame_bytes_max)), frames_(frames) {}
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  ~Outlet() { close(); }

  // Begins to connect to whoever listens there; `hello` goes first.
  void open(const Handle& handle, std::string hello);
  bool opened() const { return opened_; }
  bool connected() const { return sender_ != nullptr; }

  // Room for a frame, or none: not connected, or the peer has room for no more.
  std::span<std::byte> reserve(std::size_t bytes);
  void commit(std::uint32_t tag, std::size_t bytes, std::uint64_t released);
  // A record that is no frame; false: no small slot is free.
  bool say(const RecordHeader& header, std::string_view payload);

  // The peer has released so many. False: it cannot have.
  bool credit(std::uint64_t released);

  // Connects and sends what can be sent. True when anything happened.
  bool move();

  // Every record has left, as far as the plugin says.
  bool idle() const { return waiting_.empty() && flying_.empty(); }
  // The same of frames and news.
  bool flushed() const { return unsent_ == 0; }

  // The plugin gave up on it, and said why.
  bool lost() const { return !why_.empty(); }
  const std::string& why() const { return why_; }
  std::size_t memory_bytes() const { return block_.bytes(); }

 private:
  static constexpr std::size_t kControls = 4;

  struct Slot {
    bool busy = false;
    bool counts = false;    // in unsent_
    std::size_t bytes = 0;  // of the record
    void* request = nullptr;
  };

  void close();
  void lose(const Status& status);
  bool try_connect();
  void push();
  bool post();
  bool land();
  void fill(std::size_t slot, const RecordHeader& header, std::size_t bytes);
  std::byte* memory_of(std::size_t slot);

  Device& device_;
  std::size_t slot_bytes_;
  std::size_t frames_;
  Handle handle_;
  std::string hello_;
  bool opened_ = false;
  void* sender_ = nullptr;
  Block block_;
  std::vector<Slot> slots_;  // those of frames, then small ones
  std::deque<std::size_t> waiting_;
  std::deque<std::size_t> flying_;
  std::uint64_t sent_ = 0;    // frames
  std::uint64_t credit_ = 0;  // frames that the peer has released
  std::size_t unsent_ = 0;
  std::string why_;
};

}  // namespace tutti::transport::net_plugin

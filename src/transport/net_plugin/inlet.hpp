// inlet.hpp: the connection on which a peer speaks to this rank: slots that the plugin receives
// into, in turn. A record is shown where it lies until it is given back.
//
// A plugin's listener stays open for one connection: NCCL never wants a second one, so that many
// plugins refuse it. Who was turned away makes room for whoever comes next, where the plugin allows
// that. Knows Device and wire.hpp; does not know who the peer is (endpoint.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net_plugin/block.hpp"
#include "transport/net_plugin/wire.hpp"

namespace tutti::transport::net_plugin {

// What has arrived.
struct Record {
  std::size_t slot = 0;
  RecordHeader header;
  std::span<const std::byte> payload;
};

class Inlet {
 public:
  Inlet(Device& device, std::size_t frame_bytes_max, std::size_t frames)
      : device_(device), slot_bytes_(slot_bytes(frame_bytes_max)), slots_(frames + kSpare) {}
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;
  ~Inlet();

  // Where the peer can connect.
  Result<Handle> listen();

  // Accepts whoever has connected. True when anything happened.
  bool accept();
  bool accepted() const { return receiver_ != nullptr; }
  // Hangs up on somebody who is not the peer, and listens on.
  void turn_away();
  // The peer is there: nobody else will be heard.
  void stop_listening();

  // Offers empty slots to the plugin. True when it took any.
  bool post();
  // The next record, if it has arrived; also when lost(), as long as it is not drained().
  // Lifetime  of the payload: until give_back(slot).
  std::optional<Record> next();
  void give_back(std::size_t slot) { empty_.push_back(slot); }

  // The plugin gave up on it, and said why. What came before may still be found.
  bool lost() const { return !why_.empty(); }
  // Nothing more will be found.
  bool drained() const { return lost() && posted_.empty(); }
  bool corrupt() const { return corrupt_; }  // and why() says what is wrong
  const std::string& why() const { return why_; }
  std::size_t memory_bytes() const { return block_.bytes(); }

 private:
  // Beyond those of frames: records that are none are read at once, so that these come free again
  // whatever becomes of the frames.
  static constexpr std::size_t kSpare = 2;

  void close();
  void lose(const Status& status);

  Device& device_;
  std::size_t slot_bytes_;
  std::vector<void*> slots_;  // the request of each
  void* listener_ = nullptr;
  void* receiver_ = nullptr;
  Block block_;
  std::deque<std::size_t> empty_;
  std::deque<std::size_t> posted_;
  std::string why_;
  bool corrupt_ = false;
};

}  // namespace tutti::transport::net_plugin

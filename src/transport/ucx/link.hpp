// link.hpp: the connection of one rank with one other, which all channels share: UCX's endpoint,
// what lies with UCX until it has left, and how it ended.
//
// It begins with a knock, a message of one byte that the peer takes and forgets. The reason is UCX
// 1.13: an active message on a connection that is being made has UCX greet the peer, and if that
// dies before it has answered, an assertion about the greeting ends the whole process (the packages
// of Debian and Ubuntu have assertions on). A knock needs no greeting, and when it has left there
// is a connection.
//
// UCX's callbacks only note what they say; what it means is decided when nobody is inside of UCX
// (transport.cc). Knows Mesh and UCX; does not know frames.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/ucx/lent_memory.hpp"
#include "transport/ucx/mesh.hpp"

namespace tutti::transport::ucx {

class Link;

// A message while UCX has it: its header must stay where it is as long as it is busy.
struct Sending {
  RecordHeader header;
  std::array<std::byte, kLentHeadBytesMax> lent_head{};  // right behind it
  std::uint32_t lent_head_bytes = 0;
  bool busy = false;
  Link* link = nullptr;
  Lent* lent = nullptr;  // where its payload lies; null: in memory of this transport's own
};
static_assert(offsetof(Sending, lent_head) == kHeaderBytes);

// What a message ends with.
struct Payload {
  const void* at = nullptr;
  std::size_t bytes = 0;
  bool eager = false;    // it is short, and goes at once
  Lent* lent = nullptr;  // null: it is in memory of this transport's own
};

class Link {
 public:
  Link(Mesh& mesh, Rank peer);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Rank peer() const { return peer_; }
  // With which the peer's records begin.
  const Key& key_in() const { return key_in_; }

  // Begins to connect, if that has not been done.
  void open();
  bool opened() const { return handle_ != nullptr || lost(); }
  // Connected: messages can be sent.
  bool ready() const { return ready_ && !lost(); }

  // Sends a message whose header is filled in but for what is the link's.
  // Requires  not busy, ready.
  void send(Sending& sending, const Payload& payload);

  // Something genuine came from the peer.
  void meet() { met_ = true; }
  bool met() const { return met_; }

  // ---- How it ended ----

  // UCX, or the kernel, says that the peer cannot be reached any more.
  void lose(std::string_view why);
  bool lost() const { return !why_.empty(); }
  bool ended() const { return lost() || left(); }
  const std::string& why() const { return why_; }

  // The peer has said goodbye, or why it failed: nothing more comes.
  void hear_goodbye() { left_ = true; }
  bool left() const { return left_; }
  void hear_failure(std::uint32_t words);
  const std::optional<std::uint32_t>& failed_words() const { return failed_words_; }

  // Its end has not been judged yet.
  bool awaits_verdict() const { return !judged_ && !left_ && (failed_words_ || lost()); }
  // What the end means, once; nothing while others may still say what is behind it.
  std::optional<Status> judge();
  // Its endpoints have failed otherwise: nobody asks what its end means.
  void settle() { judged_ = true; }

  // ---- Leaving ----

  // All that was given to UCX has left, or will not.
  bool idle() const { return unfinished_ == 0 || left_ || lost(); }

  // Says the last words, once. False: not connected yet.
  bool say_last_words(const Status& failure);
  // Begins to close; true when it is closed, or cannot be waited for.
  bool close();
  // Before the worker ends.
  void stop_closing();

 private:
  void knock();
  static void on_knocked(void* request, ucs_status_t status, void* link);
  static void on_sent(void* request, ucs_status_t status, void* sending);
  void finish(Sending& sending, bool well);
  static void on_error(void* link, ucp_ep_h handle, ucs_status_t status);
  bool waited_for_news();

  Mesh& mesh_;
  const Functions& f_;  // the worker's end calls back, too
  Rank peer_;
  Key key_in_;
  Key key_out_;
  ucp_ep_h handle_ = nullptr;
  bool ready_ = false;
  bool met_ = false;
  std::size_t unfinished_ = 0;
  std::string why_;
  bool left_ = false;
  std::optional<std::uint32_t> failed_words_;
  bool judged_ = false;
  std::optional<std::chrono::steady_clock::time_point> ended_;
  Sending last_words_;
  bool said_last_words_ = false;
  bool began_to_close_ = false;
  void* closing_ = nullptr;
};

}  // namespace tutti::transport::ucx

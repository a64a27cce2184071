// flow.hpp: the directed connections of an endpoint. Whoever has something to say opens a socket of
// its own, so two ranks that start at once cannot collide, and a direction that is not used costs
// nothing. Frames and signals have separate sockets: a signal is never stuck behind frames that
// nobody reads. The way back on a socket carries only the last words of its reader.
//
// But where both ranks send frames, those of the higher one move to the way back of the lower one's
// connection as soon as there is one: what is received is then acknowledged by what is sent, and
// not by packets of its own, which cost a small message a third of its time. The higher one's own
// connection stays, for last words.
//
// Knows sockets, rings and wire.hpp; does not know who the peer is (endpoint.hpp) nor who polls.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "transport/bootstrap/socket.hpp"
#include "transport/tcp/calls.hpp"
#include "transport/tcp/ring.hpp"
#include "transport/tcp/wire.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::tcp {

// How a connection ended: not yet, with a goodbye, or without one (why() says how).
enum class End { none, goodbye, lost };

// Says how a connection is opened, once it is known where it comes from.
using Introduce = std::function<Opening(const SocketAddress& origin)>;

// Frames that leave.
class FrameSender {
 public:
  bool opened() const { return opened_; }
  const Socket& socket() const { return socket_; }  // empty when the peer refused at once

  // Begins to connect; the greeting goes first. A peer that refuses is an end(), not an error.
  Status open(const SocketAddress& address, const Introduce& introduce, std::size_t queue_bytes);

  // As Endpoint. The ring is made with the first frame. Errors  status().
  std::span<std::byte> reserve(std::size_t bytes);
  void commit(std::uint32_t tag, std::size_t bytes);
  bool send(std::uint32_t tag, std::span<const std::byte> head, std::span<const std::byte> body);

  // Sends what the socket takes, unless it said "would block" and has not called back since.
  // True when something moved.
  bool flush();
  bool flushed() const { return ring_.stored() == 0 || end_ != End::none; }
  // All that was sent has arrived at the peer's host, or never will.
  bool delivered() const { return flushed() && (!opened_ || arrived(way())); }

  // Something happened on the socket.
  void on_events(std::uint32_t events);

  // The last words: kGoodbyeAlone, or failed_words(). False while they do not fit.
  bool say_goodbye(std::uint32_t words = kGoodbyeAlone);

  // Moves what will be sent to the way back of `carrier`, the connection that the reader opened,
  // where the key of its last words proves it. False while what was committed is not sent.
  // Lifetime  of the carrier: longer than this.
  bool move(const Socket& carrier, std::string_view key);
  bool moved() const { return carrier_ >= 0; }
  // Something happened on the carrier.
  void on_carrier_events(std::uint32_t events);
  // The same last words where nothing stands before them, once moved.
  void say_apart(std::uint32_t words);
  // The reader's own frames come back on this connection: read_back() reads no more.
  bool carries_back() const { return carries_back_; }
  // Nothing more will come back than what has arrived.
  bool ending() const { return ending_; }

  End end() const { return end_; }
  bool reader_has_flow() const { return reader_has_flow_; }
  // Why the reader gave up, as it came (wire.hpp); 0 when it said nothing of the kind.
  std::uint32_t failed_words() const { return failed_words_; }
  // Looks whether the reader has said its last words.
  void read_back();
  const std::string& why() const { return why_; }
  std::size_t memory_bytes() const { return ring_.capacity(); }

 private:
  bool send_gathered(std::uint32_t tag, std::span<const std::byte> head,
                     std::span<const std::byte> body);
  void append(std::span<const std::byte> bytes);
  void change_over();
  int way() const { return moved() ? carrier_ : socket_.number(); }
  bool take_last_words();
  void lose(int error);

  Socket socket_;
  int carrier_ = -1;     // instead of socket_, once moved
  bool moving_ = false;  // and what is said before is not sent
  int next_carrier_ = -1;
  std::string words_on_carrier_;
  bool carries_back_ = false;
  bool ending_ = false;
  Ring ring_;
  std::string greeting_;
  std::string last_words_key_;
  std::size_t greeting_sent_ = 0;
  std::size_t queue_bytes_ = 0;
  bool opened_ = false;
  bool connected_ = false;
  bool blocked_ = false;
  bool said_goodbye_ = false;
  End end_ = End::none;
  bool reader_has_flow_ = false;
  std::uint32_t failed_words_ = 0;
  std::array<char, kLastWordsBytes> back_{};
  std::size_t back_got_ = 0;
  std::string why_;
};

// Frames that arrive.
class FrameReceiver {
 public:
  bool attached() const { return static_cast<bool>(socket_); }
  const Socket& socket() const { return socket_; }

  // Takes over a socket whose greeting has been read. `may_move`: the sender may.
  Status attach(Socket socket, std::string last_words_key, std::size_t queue_bytes,
                std::size_t frame_bytes_max, bool may_move = false);
  const std::string& last_words_key() const { return last_words_key_; }

  // The sender has moved, and nothing more comes until follow() says where it comes now.
  bool stranded() const { return moved_ && carrier_ < 0; }
  // `ending`: all that will come has arrived there.
  void follow(const Socket& carrier, bool ending);
  bool followed() const { return carrier_ >= 0; }
  // What a sender that moved may have said on its old connection.
  void hear_apart();

  void on_events(std::uint32_t events);

  // True when receive() may find something and there is room for it.
  bool wants_to_receive() const;
  // True when receive() could be tried although the socket has not called.
  bool may_glance() const {
    return attached() && !ready_ && end_ == End::none && !taking_ && !stranded();
  }
  // True when only the lack of room keeps it from receiving.
  bool waits_for_room() const { return ready_ && end_ == End::none; }
  // The same for take().
  bool may_take_glance() const { return attached() && !ready_ && end_ == End::none && !stranded(); }
  // True when take() reads, and nobody else.
  bool left_to_take() const { return taking_ || expects_long_; }
  // Reads once into the ring. True when something moved.
  bool receive();

  bool peek(Frame& frame);
  void release();
  // As Endpoint, but nothing is read unless `look`.
  bool peek_head(std::size_t bytes, Frame& frame, bool look);
  Taken take(std::uint32_t tag, std::size_t head, std::span<std::byte> place, bool look);

  // The last words to the sender: kGoodbyeAlone, kGoodbyeInPair or failed_words().
  // False while they do not fit.
  bool say_goodbye(std::uint32_t words);

  End end() const { return end_; }
  const std::string& why() const { return why_; }
  // Why the sender gave up, as it came; 0 when it said nothing of the kind.
  std::uint32_t failed_words() const { return failed_words_; }
  bool corrupt() const { return corrupt_; }
  std::size_t memory_bytes() const { return ring_.capacity(); }

 private:
  bool front_is_whole() const;
  Taken begin_to_take(std::uint32_t tag, std::size_t head, std::span<std::byte> place);
  bool receive_until(std::size_t stored);
  bool land_some();
  bool receive_up_to(std::size_t bytes);
  bool is_move(const FrameHeader& header) const;
  void leave_connection(std::size_t at);
  void hear_failure(const FrameHeader& goodbye);
  bool landed() const { return landing_.empty() && ring_.stored() >= padding_; }
  int source() const { return carrier_ >= 0 ? carrier_ : socket_.number(); }
  bool took(ssize_t got, std::size_t asked);
  void finish(End end, std::string why);
  void finish(const FrameHeader& goodbye);
  void find_last_words(std::string why);

  Socket socket_;
  Ring ring_;
  std::string last_words_key_;
  std::size_t frame_bytes_max_ = 0;
  int carrier_ = -1;  // instead of socket_, once followed
  bool may_move_ = false;
  bool moved_ = false;
  // Where the rest of the frame goes that take() has begun with, and what stands behind it.
  bool taking_ = false;
  bool expects_long_ = false;  // take() goes on with a frame: who reads ahead would spoil it
  std::span<std::byte> landing_;
  std::size_t padding_ = 0;
  bool ready_ = false;
  bool ending_ = false;  // the end of the stream is near: read until it comes
  bool corrupt_ = false;
  bool said_goodbye_ = false;
  End end_ = End::none;
  std::uint32_t failed_words_ = 0;
  std::string why_;
};

// Signals that leave: only the newest value of each counts, so nothing queues.
class SignalSender {
 public:
  bool opened() const { return closed_ || static_cast<bool>(socket_); }
  const Socket& socket() const { return socket_; }  // empty when the peer refused at once
  Status open(const SocketAddress& address, const Introduce& introduce);
  void raise(Signal which, std::uint64_t value);
  bool flush();
  bool flushed() const {
    const bool dirty = std::find(dirty_.begin(), dirty_.end(), true) != dirty_.end();
    return closed_ || (!dirty && sent_ == going_.size());
  }
  bool delivered() const { return flushed() && (closed_ || !socket_ || arrived(socket_.number())); }
  void on_events(std::uint32_t events);

 private:
  Socket socket_;
  std::string going_;  // the greeting or a raise, being sent
  std::size_t sent_ = 0;
  std::array<std::uint64_t, kSignalCount> values_{};
  std::array<bool, kSignalCount> dirty_{};
  bool blocked_ = false;
  bool closed_ = false;  // the peer is gone; the frames' connections say how
};

// Signals that arrive.
class SignalReceiver {
 public:
  bool attached() const { return static_cast<bool>(socket_); }
  const Socket& socket() const { return socket_; }
  void attach(Socket socket) { socket_ = std::move(socket); }
  void on_events() { ready_ = true; }
  bool wants_to_receive() const { return ready_; }
  bool receive();
  std::uint64_t value(Signal which) const { return values_[static_cast<std::size_t>(which)]; }
  bool corrupt() const { return corrupt_; }

 private:
  void take(const Raise& raise);

  Socket socket_;
  std::array<std::byte, 64 * sizeof(Raise)> buffer_{};
  std::size_t got_ = 0;
  std::array<std::uint64_t, kSignalCount> values_{};
  bool ready_ = false;
  bool corrupt_ = false;
};

}  // namespace tutti::transport::tcp

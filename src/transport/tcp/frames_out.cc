// frames_out.cc: frames that leave; see flow.hpp.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.hpp"
#include "transport/tcp/calls.hpp"
#include "transport/tcp/congestion.hpp"
#include "transport/tcp/flow.hpp"
#include "transport/tcp/poller.hpp"

namespace tutti::transport::tcp {

Status FrameSender::open(const SocketAddress& address, const Introduce& introduce,
                         std::size_t queue_bytes) {
  Result<Socket> socket = start_connecting_unpaced(address);
  opened_ = true;
  if (socket.status().code() == StatusCode::peer_lost) {
    end_ = End::lost;
    why_ = socket.status().message();
    return Status();
  }
  TUTTI_TRY(socket);
  const Result<SocketAddress> origin = local_address(*socket);
  TUTTI_TRY(origin);
  socket_ = std::move(*socket);
  Opening opening = introduce(*origin);
  greeting_ = std::move(opening.greeting);
  last_words_key_ = std::move(opening.last_words_key);
  queue_bytes_ = queue_bytes;
  return Status();
}

std::span<std::byte> FrameSender::reserve(std::size_t bytes) {
  if (!ring_.made()) {
    Result<Ring> made = Ring::make(queue_bytes_);
    if (!made.ok()) {
      end_ = End::lost;
      why_ = made.status().message();
      return {};
    }
    ring_ = std::move(*made);
  }
  if (end_ != End::none) ring_.read(ring_.stored());  // nobody will take it
  if (moving_) return {};
  ring_.rewind();
  if (ring_.room() < frame_span(bytes)) return {};
  return {ring_.back() + kHeaderBytes, bytes};
}

void FrameSender::commit(std::uint32_t tag, std::size_t bytes) {
  write_header(ring_.back(), {static_cast<std::uint32_t>(bytes), tag});
  std::memset(ring_.back() + kHeaderBytes + bytes, 0, padded(bytes) - bytes);
  ring_.wrote(frame_span(bytes));
  flush();
}

// What the socket does not take of a long frame waits in the ring, where the next one would wait
// for it: there is no room until it has left.
bool FrameSender::send(std::uint32_t tag, std::span<const std::byte> head,
                       std::span<const std::byte> body) {
  flush();
  if (end_ != End::none) return true;  // nobody will take it
  if (blocked_ || moving_ || ring_.stored() > 0) return false;
  if (reserve(head.size() + body.size()).data() == nullptr) return false;
  return send_gathered(tag, head, body);
}

bool FrameSender::send_gathered(std::uint32_t tag, std::span<const std::byte> head,
                                std::span<const std::byte> body) {
  static constexpr std::array<std::byte, kUnitBytes> kPadding{};
  const std::size_t bytes = head.size() + body.size();
  const std::size_t before = kHeaderBytes + head.size();
  write_header(ring_.back(), {static_cast<std::uint32_t>(bytes), tag});
  std::copy(head.begin(), head.end(), ring_.back() + kHeaderBytes);
  const auto padding = std::span(kPadding).first(padded(bytes) - bytes);
  // sendmsg() only reads what it is told to send.
  std::array<iovec, 3> pieces{{{ring_.back(), before},
                               {const_cast<std::byte*>(body.data()), body.size()},
                               {const_cast<std::byte*>(padding.data()), padding.size()}}};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t sent = ::sendmsg(way(), &message, MSG_NOSIGNAL);
  if (sent < 0 && would_block(errno)) {
    blocked_ = errno != EINTR;
    return false;
  }
  if (sent < 0) lose(errno);
  auto left = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  ring_.wrote(before);
  ring_.read(std::min(left, before));
  left -= std::min(left, before);
  for (const std::span<const std::byte> piece : {body, std::span<const std::byte>(padding)}) {
    const std::size_t gone = std::min(left, piece.size());
    append(piece.subspan(gone));
    left -= gone;
  }
  flush();
  return true;
}

void FrameSender::append(std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), ring_.back());
  ring_.wrote(bytes.size());
}

bool FrameSender::move(const Socket& carrier, std::string_view key) {
  if (moved() || moving_ || said_goodbye_ || end_ != End::none) return false;
  if (greeting_sent_ < greeting_.size() || ring_.stored() > 0 || blocked_) return false;
  if (reserve(0).data() == nullptr) return false;
  write_header(ring_.back(), {kMovedBytes, 0});
  ring_.wrote(kHeaderBytes);
  moving_ = true;
  next_carrier_ = carrier.number();
  words_on_carrier_ = encode_last_words(kMoved, key);
  flush();
  return true;
}

// All that went the old way has left.
void FrameSender::change_over() {
  moving_ = false;
  carrier_ = next_carrier_;
  ring_.rewind();
  append(std::as_bytes(std::span(words_on_carrier_)));
}

void FrameSender::on_carrier_events(std::uint32_t events) {
  if (moved() && (events & EPOLLOUT) != 0) blocked_ = false;
}

void FrameSender::say_apart(std::uint32_t words) {
  const FrameHeader goodbye{kGoodbyeBytes, words};
  if (moved())
    static_cast<void>(
        send_whole(socket_.number(), {reinterpret_cast<const char*>(&goodbye), sizeof(goodbye)}));
}

bool FrameSender::flush() {
  bool moved = false;
  while (!blocked_ && end_ == End::none) {
    const bool greeting = greeting_sent_ < greeting_.size();
    if (!greeting && ring_.stored() == 0 && moving_) change_over();
    if (!greeting && ring_.stored() == 0) return moved;
    const void* from = greeting ? static_cast<const void*>(greeting_.data() + greeting_sent_)
                                : static_cast<const void*>(ring_.front());
    const std::size_t bytes = greeting ? greeting_.size() - greeting_sent_ : ring_.stored();
    const ssize_t sent = ::send(way(), from, bytes, MSG_NOSIGNAL);
    if (sent >= 0) {
      moved = true;
      if (greeting)
        greeting_sent_ += static_cast<std::size_t>(sent);
      else
        ring_.read(static_cast<std::size_t>(sent));
    } else if (would_block(errno)) {
      blocked_ = errno != EINTR;
    } else {
      lose(errno);
    }
  }
  return moved;
}

void FrameSender::on_events(std::uint32_t events) {
  if ((events & kEndEvents) != 0) ending_ = true;
  if ((events & (EPOLLIN | kEndEvents)) != 0) read_back();
  if ((events & EPOLLOUT) == 0) return;
  // The first time, it has just been connected.
  if (!std::exchange(connected_, true)) pace_if_far(socket_);
  blocked_ = false;
}

// The reader said goodbye, or is gone.
void FrameSender::read_back() {
  while (end_ == End::none && !carries_back_) {
    const ssize_t got =
        ::recv(socket_.number(), back_.data() + back_got_, back_.size() - back_got_, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) return;
    if (got <= 0) return lose(got == 0 ? 0 : errno);
    back_got_ += static_cast<std::size_t>(got);
    if (back_got_ < back_.size()) continue;
    if (!take_last_words()) return lose(EPROTO);
  }
}

bool FrameSender::take_last_words() {
  const auto tag = read_last_words({back_.data(), back_got_}, last_words_key_);
  if (!tag) return false;
  carries_back_ = *tag == kMoved;
  if (carries_back_) return true;
  if ((*tag & kGoodbyeFailed) != 0) {
    failed_words_ = *tag;
    end_ = End::lost;
    why_ = "it failed";
  } else {
    reader_has_flow_ = *tag == kGoodbyeInPair;
    end_ = End::goodbye;
  }
  return true;
}

// A failed send may hide a goodbye that was not read yet.
void FrameSender::lose(int error) {
  if ((error == EPIPE || error == ECONNRESET) && !carries_back_) {
    const ssize_t got =
        ::recv(socket_.number(), back_.data() + back_got_, back_.size() - back_got_, 0);
    if (got > 0) back_got_ += static_cast<std::size_t>(got);
    if (take_last_words() && !carries_back_) return;
  }
  end_ = End::lost;
  why_ = error == 0 ? "connection closed" : std::strerror(error);
}

bool FrameSender::say_goodbye(std::uint32_t words) {
  if (said_goodbye_ || end_ != End::none || !opened()) return true;
  if (greeting_sent_ < greeting_.size()) flush();
  if (greeting_sent_ < greeting_.size() || ring_.stored() > 0) return false;
  const FrameHeader goodbye{kGoodbyeBytes, words};
  said_goodbye_ = send_whole(way(), {reinterpret_cast<const char*>(&goodbye), sizeof(goodbye)});
  return said_goodbye_;
}

}  // namespace tutti::transport::tcp

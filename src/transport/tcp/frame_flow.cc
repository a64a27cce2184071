// frame_flow.cc: frames out and frames in; see flow.hpp.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "base/try.hpp"
#include "transport/tcp/flow.hpp"
#include "transport/tcp/poller.hpp"

namespace tutti::transport::tcp {
namespace {

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// A small last message on a connection that hardly carries anything that way.
bool send_whole(const Socket& socket, std::string_view bytes) {
  const ssize_t sent =
      ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size()) || (sent < 0 && !would_block(errno));
}

}  // namespace

Status FrameSender::open(const SocketAddress& address, const Introduce& introduce,
                         std::size_t queue_bytes) {
  Result<Socket> socket = start_connecting(address);
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

bool FrameSender::flush() {
  bool moved = false;
  while (!blocked_ && end_ == End::none) {
    const bool greeting = greeting_sent_ < greeting_.size();
    if (!greeting && ring_.stored() == 0) return moved;
    const void* from = greeting ? static_cast<const void*>(greeting_.data() + greeting_sent_)
                                : static_cast<const void*>(ring_.front());
    const std::size_t bytes = greeting ? greeting_.size() - greeting_sent_ : ring_.stored();
    const ssize_t sent = ::send(socket_.number(), from, bytes, MSG_NOSIGNAL);
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
  if ((events & (EPOLLIN | kEndEvents)) != 0) read_back();
  if ((events & EPOLLOUT) != 0) blocked_ = false;
}

// The reader said goodbye, or is gone.
void FrameSender::read_back() {
  while (end_ == End::none) {
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
  if (error == EPIPE || error == ECONNRESET) {
    const ssize_t got =
        ::recv(socket_.number(), back_.data() + back_got_, back_.size() - back_got_, 0);
    if (got > 0) back_got_ += static_cast<std::size_t>(got);
    if (take_last_words()) return;
  }
  end_ = End::lost;
  why_ = error == 0 ? "connection closed" : std::strerror(error);
}

bool FrameSender::say_goodbye(std::uint32_t words) {
  if (said_goodbye_ || end_ != End::none || !opened()) return true;
  if (greeting_sent_ < greeting_.size()) flush();
  if (greeting_sent_ < greeting_.size() || ring_.stored() > 0) return false;
  const FrameHeader goodbye{kGoodbyeBytes, words};
  said_goodbye_ = send_whole(socket_, {reinterpret_cast<const char*>(&goodbye), sizeof(goodbye)});
  return said_goodbye_;
}

Status FrameReceiver::attach(Socket socket, std::string last_words_key, std::size_t queue_bytes,
                             std::size_t frame_bytes_max) {
  Result<Ring> made = Ring::make(queue_bytes);
  TUTTI_TRY(made);
  ring_ = std::move(*made);
  socket_ = std::move(socket);
  last_words_key_ = std::move(last_words_key);
  // Nobody waits for acknowledgements, and sending them at once costs a fifth of the latency.
  const int off = 0;
  ::setsockopt(socket_.number(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off));
  frame_bytes_max_ = frame_bytes_max;
  ready_ = true;
  return Status();
}

void FrameReceiver::on_events(std::uint32_t events) {
  ready_ = true;
  if ((events & kEndEvents) != 0) ending_ = true;
}

bool FrameReceiver::front_is_whole() const {
  if (ring_.stored() < kHeaderBytes) return false;
  const FrameHeader header = read_header(ring_.front());
  return header.bytes > frame_bytes_max_ || ring_.stored() >= frame_span(header.bytes);
}

// Small reads into a nearly full ring cost more than they bring, unless a frame waits for them.
bool FrameReceiver::wants_to_receive() const {
  if (!ready_ || end_ != End::none || ring_.room() == 0) return false;
  return ring_.room() >= ring_.capacity() / 4 || !front_is_whole();
}

bool FrameReceiver::receive() {
  ring_.rewind();
  const std::size_t room = ring_.room();
  const ssize_t got = ::recv(socket_.number(), ring_.back(), room, 0);
  if (got > 0) {
    ring_.wrote(static_cast<std::size_t>(got));
    // Less than asked for: the socket is empty, and will say when it is not.
    if (static_cast<std::size_t>(got) < room && !ending_) ready_ = false;
    return true;
  }
  if (got < 0 && would_block(errno)) {
    if (errno != EINTR) ready_ = false;
    return false;
  }
  find_last_words(got == 0 ? "connection closed" : std::strerror(errno));
  return true;
}

void FrameReceiver::finish(End end, std::string why) {
  ready_ = false;
  end_ = end;
  why_ = std::move(why);
}

void FrameReceiver::finish(const FrameHeader& goodbye) {
  const bool failed = (goodbye.tag & kGoodbyeFailed) != 0;
  if (failed) failed_words_ = goodbye.tag;
  finish(failed ? End::lost : End::goodbye, failed ? "it failed" : "");
}

// The stream has ended: whether the stored frames end with a goodbye.
void FrameReceiver::find_last_words(std::string why) {
  std::size_t at = 0;
  while (ring_.stored() - at >= kHeaderBytes) {
    const FrameHeader header = read_header(ring_.front() + at);
    if (header.bytes == kGoodbyeBytes) return finish(header);
    if (header.bytes > frame_bytes_max_ || frame_span(header.bytes) > ring_.stored() - at) break;
    at += frame_span(header.bytes);
  }
  finish(End::lost, std::move(why));
}

bool FrameReceiver::peek(Frame& frame) {
  if (ring_.stored() < kHeaderBytes) return false;
  const FrameHeader header = read_header(ring_.front());
  if (header.bytes > frame_bytes_max_) {
    if (header.bytes == kGoodbyeBytes)
      finish(header);
    else
      corrupt_ = true;
    return false;
  }
  if (ring_.stored() < frame_span(header.bytes)) return false;
  frame.tag = header.tag;
  frame.payload = {ring_.front() + kHeaderBytes, header.bytes};
  return true;
}

void FrameReceiver::release() {
  Frame frame;
  TUTTI_ASSERT(peek(frame), "release() without a frame");
  ring_.read(frame_span(frame.payload.size()));
}

bool FrameReceiver::say_goodbye(std::uint32_t words) {
  if (said_goodbye_ || end_ != End::none || !attached()) return true;
  said_goodbye_ = send_whole(socket_, encode_last_words(words, last_words_key_));
  return said_goodbye_;
}

}  // namespace tutti::transport::tcp

// frames_in.cc: frames that arrive; see flow.hpp.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/try.hpp"
#include "transport/tcp/calls.hpp"
#include "transport/tcp/congestion.hpp"
#include "transport/tcp/flow.hpp"
#include "transport/tcp/poller.hpp"

namespace tutti::transport::tcp {
namespace {

// Nobody waits for acknowledgements, and sending them at once costs a fifth of the latency.
void take_time_to_acknowledge(int socket) {
  const int off = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off));
}

}  // namespace

Status FrameReceiver::attach(Socket socket, std::string last_words_key, std::size_t queue_bytes,
                             std::size_t frame_bytes_max, bool may_move) {
  Result<Ring> made = Ring::make(queue_bytes);
  TUTTI_TRY(made);
  ring_ = std::move(*made);
  socket_ = std::move(socket);
  last_words_key_ = std::move(last_words_key);
  take_time_to_acknowledge(socket_.number());
  pace_if_far(socket_);  // our own frames may move to it
  frame_bytes_max_ = frame_bytes_max;
  may_move_ = may_move;
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
  if (!ready_ || end_ != End::none || left_to_take() || stranded()) return false;
  if (ring_.room() == 0) return false;
  return ring_.room() >= ring_.capacity() / 4 || !front_is_whole();
}

bool FrameReceiver::receive() {
  ring_.rewind();
  return receive_up_to(ring_.room());
}

bool FrameReceiver::receive_up_to(std::size_t bytes) {
  const ssize_t got = ::recv(source(), ring_.back(), bytes, 0);
  if (got > 0) ring_.wrote(static_cast<std::size_t>(got));
  return took(got, bytes);
}

// What an attempt to read has brought, beside the bytes. True when anything happened.
bool FrameReceiver::took(ssize_t got, std::size_t asked) {
  if (got > 0) {
    // Less than asked for: the socket is empty, and will say when it is not.
    if (static_cast<std::size_t>(got) < asked && !ending_) ready_ = false;
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
    if (is_move(header)) return leave_connection(at);  // what counts is how the other one ends
    if (header.bytes > frame_bytes_max_ || frame_span(header.bytes) > ring_.stored() - at) break;
    at += frame_span(header.bytes);
  }
  finish(End::lost, std::move(why));
}

bool FrameReceiver::peek(Frame& frame) {
  if (taking_) return false;
  expects_long_ = false;
  if (ring_.stored() < kHeaderBytes) return false;
  const FrameHeader header = read_header(ring_.front());
  if (header.bytes > frame_bytes_max_) {
    if (header.bytes == kGoodbyeBytes)
      finish(header);
    else if (is_move(header))
      leave_connection(0);
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

// ---- Long frames, without the ring ----

// Whether so many bytes are stored; reads what lacks of them, and no more.
bool FrameReceiver::receive_until(std::size_t stored) {
  while (ring_.stored() < stored) {
    if (!ready_ || end_ != End::none || stranded()) return false;
    ring_.rewind();
    if (!receive_up_to(stored - ring_.stored())) return false;
  }
  return true;
}

bool FrameReceiver::peek_head(std::size_t bytes, Frame& frame, bool look) {
  if (look) ready_ = true;
  if (taking_) return false;
  expects_long_ = true;
  if (!receive_until(kHeaderBytes)) return false;
  const FrameHeader header = read_header(ring_.front());
  if (header.bytes <= bytes || header.bytes > frame_bytes_max_) {
    receive_until(header.bytes <= bytes ? frame_span(header.bytes) : 0);
    return peek(frame);
  }
  if (!receive_until(kHeaderBytes + bytes)) return false;
  expects_long_ = ring_.stored() < frame_span(header.bytes);
  frame.tag = header.tag;
  frame.payload = {ring_.front() + kHeaderBytes,
                   std::min<std::size_t>(ring_.stored() - kHeaderBytes, header.bytes)};
  return true;
}

Taken FrameReceiver::take(std::uint32_t tag, std::size_t head, std::span<std::byte> place,
                          bool look) {
  if (look) ready_ = true;
  if (!taking_) {
    const Taken begun = begin_to_take(tag, head, place);
    if (begun != Taken::frame) return begun;
  }
  while (!landed())
    if (!ready_ || end_ != End::none || !land_some()) return Taken::nothing;
  ring_.read(padding_);
  taking_ = expects_long_ = false;
  return Taken::frame;
}

// Only a header is read before it is known what comes behind it.
Taken FrameReceiver::begin_to_take(std::uint32_t tag, std::size_t head,
                                   std::span<std::byte> place) {
  expects_long_ = true;
  if (!receive_until(kHeaderBytes)) return Taken::nothing;
  const FrameHeader header = read_header(ring_.front());
  const bool wanted = header.bytes == head + place.size() && header.tag == tag;
  expects_long_ = wanted && ring_.stored() < frame_span(header.bytes);
  if (!expects_long_) return Taken::other;
  if (!receive_until(kHeaderBytes + head)) return Taken::nothing;
  ring_.read(kHeaderBytes + head);
  const std::size_t here = std::min(ring_.stored(), place.size());
  std::copy_n(ring_.front(), here, place.begin());
  ring_.read(here);
  landing_ = place.subspan(here);
  padding_ = padded(header.bytes) - header.bytes;
  taking_ = true;
  return Taken::frame;
}

// With the end of a frame comes the header of the next one.
bool FrameReceiver::land_some() {
  ring_.rewind();
  const std::size_t behind = padding_ + kHeaderBytes - ring_.stored();
  const std::array<iovec, 2> places{{{landing_.data(), landing_.size()}, {ring_.back(), behind}}};
  const ssize_t got = ::readv(source(), places.data(), 2);
  const auto bytes = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  const std::size_t landed = std::min(bytes, landing_.size());
  landing_ = landing_.subspan(landed);
  ring_.wrote(bytes - landed);
  return took(got, landed + landing_.size() + behind);
}

// ---- The sender's move to our own connection ----

bool FrameReceiver::is_move(const FrameHeader& header) const {
  return header.bytes == kMovedBytes && may_move_ && !moved_;
}

// The word that the sender moved stands in the ring at `at`; behind it, it can only have said
// goodbye.
void FrameReceiver::leave_connection(std::size_t at) {
  moved_ = true;
  ready_ = false;
  const std::size_t behind = at + kHeaderBytes;
  if (ring_.stored() >= behind + kHeaderBytes) hear_failure(read_header(ring_.front() + behind));
  ring_.unwrite(ring_.stored() - at);
}

void FrameReceiver::follow(const Socket& carrier, bool ending) {
  carrier_ = carrier.number();
  take_time_to_acknowledge(carrier_);
  ready_ = true;
  ending_ = ending;
}

void FrameReceiver::hear_apart() {
  FrameHeader words;
  if (moved_ && ::recv(socket_.number(), &words, sizeof(words), 0) == sizeof(words))
    hear_failure(words);
}

void FrameReceiver::hear_failure(const FrameHeader& goodbye) {
  if (goodbye.bytes == kGoodbyeBytes && (goodbye.tag & kGoodbyeFailed) != 0)
    failed_words_ = goodbye.tag;
}

bool FrameReceiver::say_goodbye(std::uint32_t words) {
  if (said_goodbye_ || end_ != End::none || !attached()) return true;
  said_goodbye_ = send_whole(socket_.number(), encode_last_words(words, last_words_key_));
  return said_goodbye_;
}

}  // namespace tutti::transport::tcp

// endpoint.cc: see endpoint.hpp.
#include "transport/net_plugin/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "transport/tcp/wire.hpp"

namespace tutti::transport::net_plugin {
namespace {

// How long one connection may have ended before the other one, or another rank, says why.
constexpr std::chrono::milliseconds kNewsTime{100};
// So many who are not the peer may come before it counts as an attack.
constexpr int kStrangersMax = 64;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

NetEndpoint::NetEndpoint(Mesh& mesh, Rank peer, int channel)
    : mesh_(mesh),
      peer_(peer),
      channel_(channel),
      outlet_(mesh.device(), mesh.options().frame_bytes_max, mesh.frames()),
      inlet_(mesh.device(), mesh.options().frame_bytes_max, mesh.frames()) {}

// ---- What the executor calls ----

std::span<std::byte> NetEndpoint::reserve(std::size_t bytes) {
  TUTTI_ASSERT(bytes <= mesh_.options().frame_bytes_max,
               "a frame may be frame_bytes_max() long at most");
  if (!status_.ok() || !peer_is_of_use()) return {};
  if (!left_) [[likely]]
    return outlet_.reserve(bytes);
  discarded_.resize(std::max<std::size_t>(bytes, 1));
  return {discarded_.data(), bytes};
}

// A peer may have left before reading our answers, and nobody misses them; but when nothing of it
// is left to read either, then who sends to it counts on a rank that is gone.
bool NetEndpoint::peer_is_of_use() {
  if (!left_ || !frames_.empty()) return true;
  lose(fmt::format("rank {} has left: it closed its communicator", peer_));
  return false;
}

void NetEndpoint::commit(std::uint32_t tag, std::size_t bytes) {
  if (!status_.ok() || left_ || outlet_.lost()) return;
  told_ = released_;
  outlet_.commit(tag, bytes, released_);
}

bool NetEndpoint::peek(Frame& frame) {
  if (!status_.ok()) return false;
  if (frames_.empty()) hear();
  if (frames_.empty() || !status_.ok()) return false;
  frame.tag = frames_.front().header.tag;
  frame.payload = frames_.front().payload;
  return true;
}

void NetEndpoint::release() {
  if (!status_.ok()) return;
  TUTTI_ASSERT(!frames_.empty(), "release() without a frame");
  inlet_.give_back(frames_.front().slot);
  frames_.pop_front();
  released_ += 1;
  inlet_.post();
  speak();
}

void NetEndpoint::signal(Signal which, std::uint64_t value) {
  if (!status_.ok()) return;
  values_[static_cast<std::size_t>(which)] = value;
  raised_ = true;
  speak();
}

// ---- What the transport calls ----

void NetEndpoint::want() {
  wanted_ = true;
  if (!status_.ok()) return;
  open();
  outlet_.move();
}

void NetEndpoint::open() {
  if (outlet_.opened()) return;
  const Rank me = mesh_.options().rank;
  outlet_.open(mesh_.handle(peer_, channel_),
               encode_hello({mesh_.options().context, me, peer_, channel_}, mesh_.authenticator(),
                            mesh_.nonces(me, peer_)));
}

bool NetEndpoint::move() {
  if (!status_.ok()) return false;
  const bool sent = outlet_.move();
  const bool heard = hear();
  return speak() || sent || heard;
}

// The peer learns of signals, and of frames released when it could soon be short of room.
bool NetEndpoint::speak() {
  const bool room_due = released_ - told_ >= std::max<std::size_t>(1, mesh_.frames() / 2);
  if ((!raised_ && !room_due) || left_) return false;
  const std::string_view payload(reinterpret_cast<const char*>(values_.data()), sizeof(values_));
  if (!outlet_.say({RecordKind::news, 0, released_}, payload)) return false;
  raised_ = false;
  told_ = released_;
  return true;
}

// ---- What arrives ----

bool NetEndpoint::hear() {
  if (left_) return false;
  bool moved = inlet_.accept();
  if (inlet_.accepted()) moved = hear_records() || moved;
  if (!inlet_.lost() || !status_.ok()) return moved;
  if (!met_ && inlet_.accepted())
    turn_away();
  else if (!met_)
    fail(Status(StatusCode::system_error,
                fmt::format("rank {} cannot be accepted: {}", peer_, inlet_.why()), peer_));
  else if (inlet_.corrupt())
    corrupt(inlet_.why());
  return moved;
}

bool NetEndpoint::hear_records() {
  bool moved = inlet_.post();
  while (status_.ok() && !left_ && !failed_words_) {
    const auto record = inlet_.next();
    if (!record) break;
    hear_record(*record);
    inlet_.post();
    moved = true;
  }
  return moved;
}

void NetEndpoint::hear_record(const Record& record) {
  if (!met_) return meet(record);
  if (!outlet_.credit(record.header.released))
    return corrupt("it has released more frames than there were");
  switch (record.header.kind) {
    case RecordKind::frame:
      if (!keep_frame(record)) corrupt("a frame without room for it");
      return;
    case RecordKind::news:
      if (!hear_news(record)) corrupt("news that are none");
      break;
    case RecordKind::goodbye:
      left_ = true;
      break;
    case RecordKind::failed:
      failed_words_ = record.header.tag;
      break;
    default:
      return corrupt("a message of no known kind");
  }
  inlet_.give_back(record.slot);
}

// Who has connected: the peer, if it says so and proves it.
void NetEndpoint::meet(const Record& record) {
  const Rank me = mesh_.options().rank;
  met_ = record.header.kind == RecordKind::hello &&
         genuine(text_of(record.payload), {mesh_.options().context, peer_, me, channel_},
                 mesh_.authenticator(), mesh_.nonces(peer_, me));
  if (!met_) return turn_away();
  inlet_.give_back(record.slot);
  inlet_.stop_listening();
  open();
}

void NetEndpoint::turn_away() {
  inlet_.turn_away();
  strangers_ += 1;
  if (strangers_ > kStrangersMax)
    corrupt("others keep connecting in its place and cannot prove that they are it");
}

bool NetEndpoint::keep_frame(const Record& record) {
  if (record.payload.size() > mesh_.options().frame_bytes_max) return false;
  if (frames_.size() >= mesh_.frames()) return false;
  frames_.push_back(record);
  return true;
}

bool NetEndpoint::hear_news(const Record& record) {
  SignalValues values;
  if (record.payload.size() != sizeof(values)) return false;
  std::memcpy(values.data(), record.payload.data(), sizeof(values));
  for (std::size_t i = 0; i < values.size(); ++i) heard_[i] = std::max(heard_[i], values[i]);
  return true;
}

// ---- Ends ----

void NetEndpoint::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  mesh_.fail(status);
}

void NetEndpoint::corrupt(std::string_view what) {
  fail(Status(StatusCode::corrupt_data,
              fmt::format("rank {} sent something that makes no sense: {}", peer_, what), peer_));
}

void NetEndpoint::lose(const std::string& text) {
  fail(Status(StatusCode::peer_lost, text, peer_));
}

void NetEndpoint::judge() {
  if (failed_words_) {
    const auto failure = tcp::read_failed_words(*failed_words_, peer_);
    const bool of_use = failure && failure->culprit() < mesh_.options().size;
    // That it lost us says no more than that it is gone.
    const bool about_us = of_use && failure->code() == StatusCode::peer_lost &&
                          failure->culprit() == mesh_.options().rank;
    if (of_use && !about_us) return fail(*failure);
    return lose(fmt::format("rank {} failed", peer_));
  }
  // What it signalled and sent before it ended is true all the same, and is heard first.
  if (!inlet_.drained() && !waited_for_news()) return;
  if (inlet_.lost())
    lose(fmt::format("rank {} hung up ({})", peer_, inlet_.why()));
  else
    lose(fmt::format("rank {} cannot be reached ({})", peer_, outlet_.why()));
}

bool NetEndpoint::waited_for_news() {
  const auto now = std::chrono::steady_clock::now();
  if (!ended_) ended_ = now;
  return now - *ended_ >= kNewsTime;
}

bool NetEndpoint::part(const Status& failure) {
  const bool failed = !failure.ok();
  if (met_ && failed) open();  // who called hears it, too
  if (!outlet_.opened() || outlet_.lost()) return true;
  outlet_.move();
  // Connecting cannot be called off: what the plugin has for it would never be freed.
  if (left_) return outlet_.connected() || outlet_.lost();
  if (!failed) speak();
  if (!parted_ && !(raised_ && !failed)) {
    const RecordHeader header{failed ? RecordKind::failed : RecordKind::goodbye,
                              failed ? tcp::failed_words(failure) : 0, released_};
    parted_ = outlet_.say(header, {});
  }
  return parted_ && outlet_.idle();
}

}  // namespace tutti::transport::net_plugin

// endpoint.cc: see endpoint.hpp.
#include "transport/tcp/endpoint.hpp"

#include <fmt/format.h>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "transport/tcp/mesh.hpp"

namespace tutti::transport::tcp {
namespace {

// A peer that never met this rank has not told it why it left, only others: those pass it on.
constexpr std::chrono::milliseconds kNewsTime{50};

}  // namespace

Status TcpEndpoint::connect() {
  if (frames_out_.opened() || !status_.ok()) return status_;
  TUTTI_TRY(frames_out_.open(mesh_.address(peer_), introduce(Purpose::frames), mesh_.ring_bytes()));
  if (!frames_out_.socket()) return Status();
  frames_out_.flush();
  return mesh_.poller().watch(frames_out_.socket(), Watched::frames_out, number_);
}

Introduce TcpEndpoint::introduce(Purpose purpose) const {
  return [this, purpose](const SocketAddress& origin) {
    return mesh_.opening(peer_, channel_, purpose, origin);
  };
}

Status TcpEndpoint::attach_frames(Socket socket, std::string last_words_key) {
  if (frames_in_.attached()) return Status();  // a second one is not the peer's: drop it
  TUTTI_TRY(frames_in_.attach(std::move(socket), std::move(last_words_key),
                              mesh_.receive_ring_bytes(), mesh_.options().frame_bytes_max,
                              peer_ > mesh_.options().rank));
  return mesh_.poller().watch(frames_in_.socket(), Watched::frames_in, number_);
}

void TcpEndpoint::attach_signals(Socket socket) {
  if (signals_in_.attached()) return;
  signals_in_.attach(std::move(socket));
  const Status status = mesh_.poller().watch(signals_in_.socket(), Watched::signals_in, number_);
  if (!status.ok()) fail(status);
}

// One connection for the frames of both ranks, once each has opened one: that of the lower rank.
void TcpEndpoint::share_connection() {
  if (frames_in_.stranded() && frames_out_.carries_back())
    frames_in_.follow(frames_out_.socket(), frames_out_.ending());
  const bool moves = peer_ < mesh_.options().rank && !frames_out_.moved() && frames_out_.opened() &&
                     frames_in_.attached();
  if (moves && frames_in_.end() == End::none &&
      frames_out_.move(frames_in_.socket(), frames_in_.last_words_key()))
    mesh_.note_unsent();
}

void TcpEndpoint::on_opened_events(std::uint32_t events) {
  frames_out_.on_events(events);
  share_connection();
  if (frames_in_.followed()) frames_in_.on_events(events);
}

void TcpEndpoint::on_accepted_events(std::uint32_t events) {
  if (!frames_in_.followed()) frames_in_.on_events(events);
  frames_out_.on_carrier_events(events);
}

std::span<std::byte> TcpEndpoint::reserve(std::size_t bytes) {
  TUTTI_ASSERT(bytes <= mesh_.options().frame_bytes_max,
               "a frame may be frame_bytes_max() long at most");
  if (!can_send()) return {};
  const std::span<std::byte> room = frames_out_.reserve(bytes);
  if (frames_out_.end() == End::lost && room.data() == nullptr) judge();
  return room;
}

bool TcpEndpoint::can_send() {
  if (!status_.ok() || !frames_out_.opened()) return false;
  if (!peer_left()) [[likely]]
    return true;
  // It may have left before reading our answers, and nobody misses them; but when nothing of it
  // is left to read either, then who sends to it counts on a rank that is gone.
  Frame frame;
  if (frames_in_.peek(frame)) return true;
  lose(fmt::format("rank {} has left: it closed its communicator", peer_));
  return false;
}

bool TcpEndpoint::send(std::uint32_t tag, std::span<const std::byte> head,
                       std::span<const std::byte> body) {
  TUTTI_ASSERT(head.size() + body.size() <= mesh_.options().frame_bytes_max,
               "a frame may be frame_bytes_max() long at most");
  if (!can_send()) return false;
  const bool sent = frames_out_.send(tag, head, body);
  if (!frames_out_.flushed()) mesh_.note_unsent();
  return sent;
}

void TcpEndpoint::commit(std::uint32_t tag, std::size_t bytes) {
  if (!status_.ok()) return;
  frames_out_.commit(tag, bytes);
  if (!frames_out_.flushed()) mesh_.note_unsent();
}

bool TcpEndpoint::peek(Frame& frame) {
  if (!status_.ok()) return false;
  if (frames_in_.peek(frame)) return true;
  const bool look =
      frames_in_.wants_to_receive() || (frames_in_.may_glance() && mesh_.take_glance());
  if (look && frames_in_.receive() && frames_in_.peek(frame)) return true;
  if (frames_in_.stranded()) share_connection();
  if (frames_in_.corrupt()) [[unlikely]]
    judge();
  return false;
}

bool TcpEndpoint::peek_head(std::size_t bytes, Frame& frame) {
  if (!status_.ok()) return false;
  const bool look = frames_in_.may_take_glance() && mesh_.take_glance();
  const bool found = frames_in_.peek_head(bytes, frame, look);
  if (frames_in_.stranded()) share_connection();
  if (frames_in_.corrupt()) [[unlikely]]
    judge();
  return found;
}

Taken TcpEndpoint::take(std::uint32_t tag, std::size_t head, std::span<std::byte> place) {
  if (!status_.ok()) return Taken::nothing;
  const bool look = frames_in_.may_take_glance() && mesh_.take_glance();
  const Taken taken = frames_in_.take(tag, head, place, look);
  if (frames_in_.stranded()) share_connection();
  return taken;
}

void TcpEndpoint::release() {
  if (status_.ok()) frames_in_.release();
}

void TcpEndpoint::signal(Signal which, std::uint64_t value) {
  if (!status_.ok()) return;
  if (!signals_out_.opened()) {
    Status status = signals_out_.open(mesh_.address(peer_), introduce(Purpose::signals));
    if (status.ok() && signals_out_.socket())
      status = mesh_.poller().watch(signals_out_.socket(), Watched::signals_out, number_);
    if (!status.ok()) return fail(status);
  }
  signals_out_.raise(which, value);
  if (!signals_out_.flushed()) mesh_.note_unsent();
}

bool TcpEndpoint::has_work() const {
  return status_.ok() && (frames_in_.wants_to_receive() || signals_in_.wants_to_receive());
}

bool TcpEndpoint::serve() {
  if (!status_.ok()) return false;
  bool moved = frames_out_.flush();
  share_connection();
  moved = signals_out_.flush() || moved;
  while (signals_in_.wants_to_receive() && signals_in_.receive()) moved = true;
  if (frames_in_.wants_to_receive()) moved = frames_in_.receive() || moved;
  if (frames_in_.stranded()) share_connection();
  return moved;
}

void TcpEndpoint::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  mesh_.fail(status);
}

bool TcpEndpoint::peer_left() const {
  if (frames_in_.end() == End::goodbye) return true;
  return frames_out_.end() == End::goodbye && !frames_out_.reader_has_flow();
}

bool TcpEndpoint::awaits_verdict() const {
  return status_.ok() &&
         (frames_in_.end() == End::lost || frames_in_.corrupt() || signals_in_.corrupt() ||
          (frames_out_.end() == End::lost && frames_in_.end() == End::none));
}

void TcpEndpoint::hear_last_words() {
  if (frames_in_.corrupt() || signals_in_.corrupt())
    return fail(Status(StatusCode::corrupt_data,
                       fmt::format("rank {} sent something that is not a frame", peer_), peer_));
  // What it signalled before it closed is true all the same.
  while (signals_in_.wants_to_receive() && signals_in_.receive()) {
  }
  // A peer that gave up because of another rank says so before it closes.
  frames_out_.read_back();
  frames_in_.hear_apart();
  if (!believe(frames_out_.failed_words())) believe(frames_in_.failed_words());
}

void TcpEndpoint::judge() {
  hear_last_words();
  if (!status_.ok()) return;
  if (frames_in_.end() == End::lost)
    lose(fmt::format("rank {} hung up ({})", peer_, frames_in_.why()));
  // A peer that left may have closed our way to it without a word, while its goodbye is still on
  // its way in: then the incoming connection decides.
  else if (frames_out_.end() == End::lost && (!frames_in_.attached() || frames_in_.stranded()) &&
           waited_for_news())
    lose(fmt::format("rank {} cannot be reached ({})", peer_, frames_out_.why()));
}

bool TcpEndpoint::waited_for_news() {
  const auto now = std::chrono::steady_clock::now();
  if (!unreached_since_) unreached_since_ = now;
  return now - *unreached_since_ >= kNewsTime;
}

bool TcpEndpoint::believe(std::uint32_t last_words) {
  const auto failure = read_failed_words(last_words, peer_);
  if (!failure || failure->culprit() >= mesh_.options().size) return false;
  // That it lost us says no more than that it is gone.
  if (failure->code() == StatusCode::peer_lost && failure->culprit() == mesh_.options().rank)
    return false;
  fail(*failure);
  return true;
}

void TcpEndpoint::lose(const std::string& text) {
  fail(Status(StatusCode::peer_lost, text, peer_));
}

void TcpEndpoint::pass_on(const Status& failure) {
  if (frames_out_.moved())
    frames_out_.say_apart(failed_words(failure));
  else
    frames_in_.say_goodbye(failed_words(failure));
  frames_out_.say_goodbye(failed_words(failure));
}

bool TcpEndpoint::say_goodbye() {
  if (!status_.ok()) return true;
  const bool out = frames_out_.say_goodbye();
  if (frames_out_.moved()) return out;  // that is the way back of the other connection
  return frames_in_.say_goodbye(frames_out_.opened() ? kGoodbyeInPair : kGoodbyeAlone) && out;
}

}  // namespace tutti::transport::tcp

// endpoint.cc: see endpoint.hpp.
#include "transport/ucx/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"

namespace tutti::transport::ucx {
namespace {

// Room comes by itself while frames are taken and answered; who misses it so often asks.
constexpr int kMissesMax = 16;

}  // namespace

UcxEndpoint::UcxEndpoint(Mesh& mesh, Link& link, int channel)
    : mesh_(mesh),
      f_(mesh.worker().functions()),
      link_(link),
      channel_(channel),
      outbox_(mesh.ring_bytes()),
      inbox_(mesh.ring_bytes(), mesh.options().frame_bytes_max) {}

// ---- What the executor calls ----

std::span<std::byte> UcxEndpoint::reserve(std::size_t bytes) {
  TUTTI_ASSERT(bytes <= mesh_.options().frame_bytes_max,
               "a frame may be frame_bytes_max() long at most");
  if (!status_.ok() || !peer_is_of_use()) return {};
  if (link_.left()) [[unlikely]] {
    discarded_.resize(std::max<std::size_t>(bytes, 1));
    return {discarded_.data(), bytes};
  }
  if (!link_.ready()) return {};
  settle();
  std::byte* const room =
      frames_out_[outbox_.sent() % kFramesMax].busy ? nullptr : outbox_.room(bytes);
  if (room != nullptr) {
    misses_ = 0;
    return {room, bytes};
  }
  if (outbox_.memory_missing())
    fail(Status(StatusCode::system_error, "there is no memory for what is sent"));
  else if (++misses_ >= kMissesMax)
    ask_for_room();
  return {};
}

// A peer may have left before reading our answers, and nobody misses them; but when nothing of it
// is left to read either, then who sends to it counts on a rank that is gone.
bool UcxEndpoint::peer_is_of_use() {
  if (!link_.left() || !inbox_.empty()) return true;
  fail(Status(StatusCode::peer_lost,
              fmt::format("rank {} has left: it closed its communicator", link_.peer()),
              link_.peer()));
  return false;
}

void UcxEndpoint::commit(std::uint32_t tag, std::size_t bytes) {
  if (!status_.ok() || link_.left() || link_.lost()) return;
  Sending& sending = frames_out_[outbox_.sent() % kFramesMax];
  const Outbox::Sent sent = outbox_.commit(bytes);
  RecordHeader& header = sending.header;
  header.kind = RecordKind::frame;
  header.channel = static_cast<std::uint32_t>(channel_);
  header.tag = tag;
  header.released = inbox_.released();
  header.number = sent.number;
  header.position = sent.position;
  note_told();
  link_.send(sending, outbox_.at(sent.position), bytes, false);
}

bool UcxEndpoint::peek(Frame& frame) { return status_.ok() && inbox_.front(frame); }

void UcxEndpoint::release() {
  if (!status_.ok()) return;
  inbox_.release();
  if (room_due()) list();
}

void UcxEndpoint::signal(Signal which, std::uint64_t value) {
  if (!status_.ok()) return;
  values_[static_cast<std::size_t>(which)] = value;
  raised_ = true;
  speak();
}

// ---- What is said ----

void UcxEndpoint::want() {
  if (std::exchange(wanted_, true) || !status_.ok()) return;
  hello_due_ = true;
  speak();
}

bool UcxEndpoint::has_to_speak() const {
  return status_.ok() && !link_.left() && !link_.lost() &&
         (hello_due_ || raised_ || ask_due_ || room_due());
}

void UcxEndpoint::speak() {
  if (!has_to_speak()) return;
  link_.open();
  if (!link_.ready()) return list();
  if (hello_due_ && say(RecordKind::hello)) hello_due_ = false;
  if (ask_due_ && say(RecordKind::ask)) ask_due_ = false;
  if ((raised_ || room_due()) && say(RecordKind::news)) raised_ = false;
  if (has_to_speak()) list();
}

bool UcxEndpoint::say(RecordKind kind) {
  const auto found = std::find_if(controls_.begin(), controls_.end(),
                                  [](const Control& one) { return !one.sending.busy; });
  if (found == controls_.end()) return false;
  RecordHeader& header = found->sending.header;
  header.kind = kind;
  header.channel = static_cast<std::uint32_t>(channel_);
  header.released = inbox_.released();
  note_told();
  found->values = values_;
  const bool news = kind == RecordKind::news;
  link_.send(found->sending, found->values.data(), news ? sizeof(SignalValues) : 0, true);
  return true;
}

// Who asks has been answered only by news of more room.
void UcxEndpoint::note_told() {
  if (!inbox_.all_told()) asked_ = false;
  inbox_.told();
}

void UcxEndpoint::ask_for_room() {
  if (misses_ == 0 || asked_at_ == peer_released_) return;
  asked_at_ = peer_released_;
  ask_due_ = true;
  list();
}

void UcxEndpoint::list() {
  if (std::exchange(listed, true)) return;
  mesh_.talkative().push_back(this);
}

// ---- What arrives ----

bool UcxEndpoint::hear(const Arrival& arrival) {
  if (!status_.ok()) return false;
  met_ = true;
  if (!credit(arrival.header.released)) {
    corrupt("it has released more frames than there were");
    return false;
  }
  switch (arrival.header.kind) {
    case RecordKind::hello:
      return false;
    case RecordKind::frame:
      return hear_frame(arrival);
    case RecordKind::news:
      if (!hear_news(arrival)) corrupt("news that are none");
      return false;
    case RecordKind::ask:
      asked_ = true;
      if (room_due()) list();
      return false;
    case RecordKind::goodbye:
      link_.hear_goodbye();
      return false;
    case RecordKind::failed:
      link_.hear_failure(arrival.header.tag);
      return false;
  }
  corrupt("a message of no known kind");
  return false;
}

bool UcxEndpoint::credit(std::uint64_t released) {
  if (released > outbox_.sent()) return false;
  peer_released_ = std::max(peer_released_, released);
  return true;
}

// The peer has copied what it has released; but UCX may not have heard of that yet.
void UcxEndpoint::settle() {
  while (settled_ < peer_released_ && !frames_out_[settled_ % kFramesMax].busy) settled_ += 1;
  outbox_.free_until(settled_);
}

bool UcxEndpoint::hear_frame(const Arrival& arrival) {
  const char* why = nullptr;
  const RecordHeader& header = arrival.header;
  std::byte* const place =
      inbox_.admit({header.number, header.position, header.tag, arrival.bytes}, why);
  if (place == nullptr && why != nullptr)
    corrupt(why);
  else if (place == nullptr)
    fail(Status(StatusCode::system_error, "there is no memory for what arrives"));
  if (place == nullptr) return false;
  if (arrival.is_remote) return fetch(arrival, place);
  if (arrival.bytes > 0) std::memcpy(place, arrival.data, arrival.bytes);
  inbox_.finish(header.number);
  return false;
}

bool UcxEndpoint::fetch(const Arrival& arrival, std::byte* place) {
  Fetch& fetch = fetches_[arrival.header.number % kFramesMax];
  fetch = {this, arrival.header.number, arrival.bytes};
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.recv_am = on_fetched;
  parameters.user_data = &fetch;
  const ucs_status_ptr_t request =
      f_.am_recv_data_nbx(mesh_.worker().handle(), arrival.data, place, arrival.bytes, &parameters);
  if (request == nullptr)
    fetch.finish(UCS_OK, arrival.bytes);
  else if (UCS_PTR_IS_ERR(request))
    fetch.finish(UCS_PTR_STATUS(request), 0);
  return true;
}

void UcxEndpoint::on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* fetch) {
  Fetch& fetched = *static_cast<Fetch*>(fetch);
  fetched.endpoint->f_.request_free(request);
  fetched.finish(status, bytes);
}

void UcxEndpoint::Fetch::finish(ucs_status_t status, std::size_t got) {
  if (status != UCS_OK)
    endpoint->link_.lose(endpoint->f_.status_string(status));
  else if (got != bytes)
    endpoint->corrupt("a frame that is shorter than it said");
  else
    endpoint->inbox_.finish(number);
}

bool UcxEndpoint::hear_news(const Arrival& arrival) {
  SignalValues values;
  if (arrival.is_remote || arrival.bytes != sizeof(values)) return false;
  std::memcpy(values.data(), arrival.data, sizeof(values));
  for (std::size_t i = 0; i < values.size(); ++i) heard_[i] = std::max(heard_[i], values[i]);
  return true;
}

// ---- Ends ----

void UcxEndpoint::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  mesh_.fail(status);
}

void UcxEndpoint::corrupt(std::string_view what) {
  link_.settle();
  fail(Status(StatusCode::corrupt_data,
              fmt::format("rank {} sent something that makes no sense: {}", link_.peer(), what),
              link_.peer()));
}

}  // namespace tutti::transport::ucx

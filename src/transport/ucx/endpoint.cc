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
// Of a frame; nobody takes more at once.
constexpr std::size_t kLentBytesMax = std::size_t{1} << 30;

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
  if (!status_.ok() || link_.ended()) return;
  const Outbox::Sent sent = outbox_.commit(bytes);
  frames_out_[sent.number % kFramesMax].lent_head_bytes = 0;
  send_frame(RecordKind::frame, tag, sent, {.at = outbox_.at(sent.position), .bytes = bytes});
}

void UcxEndpoint::send_frame(RecordKind kind, std::uint32_t tag, const Outbox::Sent& sent,
                             const Payload& payload) {
  Sending& sending = frames_out_[sent.number % kFramesMax];
  RecordHeader& header = sending.header;
  header.kind = kind;
  header.channel = static_cast<std::uint32_t>(channel_);
  header.tag = tag;
  header.released = inbox_.released();
  header.number = sent.number;
  header.position = sent.position;
  note_told();
  link_.send(sending, payload);
}

bool UcxEndpoint::peek(Frame& frame) {
  if (!status_.ok() || !inbox_.front(frame)) return false;
  frame.lent_bytes = 0;
  if (announced_.empty()) [[likely]]
    return true;
  const auto found = announced_.find(inbox_.released());
  if (found != announced_.end()) frame.lent_bytes = found->second.bytes;
  return true;
}

void UcxEndpoint::release() {
  if (!status_.ok()) return;
  if (!announced_.empty()) [[unlikely]]
    if (auto unwanted = announced_.extract(inbox_.released())) drop(unwanted.mapped());
  inbox_.release();
  if (room_due()) list();
}

// ---- Lent memory ----

// What goes before the lent bytes takes room in both rings, so that all frames are counted alike;
// it travels with the header, because the payload of a message is in one piece.
bool UcxEndpoint::send_lent(std::uint32_t tag, std::span<const std::byte> head,
                            const LentPlace& body) {
  TUTTI_ASSERT(head.size() <= kLentHeadBytesMax && body.bytes > 0, "no such lent frame");
  const std::span<std::byte> room = reserve(head.size());
  if (room.data() == nullptr || link_.lost()) return false;
  if (link_.left()) return true;  // nobody misses it
  const Outbox::Sent sent = outbox_.commit(head.size());
  Sending& sending = frames_out_[sent.number % kFramesMax];
  std::copy(head.begin(), head.end(), sending.lent_head.begin());
  sending.lent_head_bytes = static_cast<std::uint32_t>(head.size());
  Lent& lent = mesh_.lent().at(body);
  lent_out_.push_back(sent.number);
  send_frame(RecordKind::lent, tag, sent,
             {.at = lent.memory.memory.get() + body.offset, .bytes = body.bytes, .lent = &lent});
  return true;
}

// A place among those that UCX has is used again only when it has done with the frame before.
std::uint64_t UcxEndpoint::lent_read() {
  const auto is_read = [&](std::uint64_t number) {
    return outbox_.sent() > number + kFramesMax || !frames_out_[number % kFramesMax].busy;
  };
  for (; !lent_out_.empty() && is_read(lent_out_.front()); lent_out_.pop_front()) ++lent_read_;
  return lent_read_;
}

bool UcxEndpoint::fetch(const LentPlace& place) {
  if (!status_.ok()) return false;
  const auto announced = announced_.extract(inbox_.released());
  TUTTI_ASSERT(announced && announced.mapped().bytes == place.bytes,
               "lent bytes are fetched that were not announced");
  Lent& lent = mesh_.lent().at(place);
  lent.under_way += 1;
  LentFetch& fetch = fetches_lent_.emplace_back();
  fetch = {this, &lent, place.bytes};
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.recv_am = on_fetched_lent;
  parameters.user_data = &fetch;
  lent.describe(parameters);
  const ucs_status_ptr_t request =
      f_.am_recv_data_nbx(mesh_.worker().handle(), announced.mapped().data,
                          lent.memory.memory.get() + place.offset, place.bytes, &parameters);
  if (request == nullptr)
    fetch.finish(UCS_OK, place.bytes);
  else if (UCS_PTR_IS_ERR(request))
    fetch.finish(UCS_PTR_STATUS(request), 0);
  return true;
}

void UcxEndpoint::on_fetched_lent(void* request, ucs_status_t status, std::size_t bytes,
                                  void* fetch) {
  LentFetch& fetched = *static_cast<LentFetch*>(fetch);
  fetched.endpoint->f_.request_free(request);
  fetched.finish(status, bytes);
}

void UcxEndpoint::LentFetch::finish(ucs_status_t status, std::size_t got) {
  is_over = true;
  is_there = status == UCS_OK && got == bytes;
  lent->end(status == UCS_OK);
  if (status != UCS_OK)
    endpoint->link_.lose(endpoint->f_.status_string(status));
  else if (got != bytes)
    endpoint->corrupt("lent bytes that are fewer than it said");
}

std::uint64_t UcxEndpoint::fetched() {
  for (; !fetches_lent_.empty() && fetches_lent_.front().is_there; fetches_lent_.pop_front())
    ++fetched_;
  return fetched_;
}

bool UcxEndpoint::has_fetched() const {
  return link_.ended() || std::all_of(fetches_lent_.begin(), fetches_lent_.end(),
                                      [](const LentFetch& fetch) { return fetch.is_over; });
}

void UcxEndpoint::drop(const Announced& announced) {
  f_.am_data_release(mesh_.worker().handle(), announced.data);
}

void UcxEndpoint::drop_unfetched() {
  for (const auto& [number, announced] : std::exchange(announced_, {})) drop(announced);
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
  link_.send(found->sending,
             {.at = found->values.data(), .bytes = news ? sizeof(SignalValues) : 0, .eager = true});
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
  if (!arrival.lent_head.empty() && arrival.header.kind != RecordKind::lent) {
    corrupt("a header that is too long");
    return false;
  }
  switch (arrival.header.kind) {
    case RecordKind::hello:
      return false;
    case RecordKind::frame:
      return hear_frame(arrival);
    case RecordKind::lent:
      return hear_lent(arrival);
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

// Where such a frame goes; null: nowhere, and that is a failure.
std::byte* UcxEndpoint::admit(const RecordHeader& header, std::size_t bytes) {
  const char* why = nullptr;
  std::byte* const place = inbox_.admit({header.number, header.position, header.tag, bytes}, why);
  if (place == nullptr && why != nullptr)
    corrupt(why);
  else if (place == nullptr)
    fail(Status(StatusCode::system_error, "there is no memory for what arrives"));
  return place;
}

// Whoever takes the frame says where its lent bytes go.
bool UcxEndpoint::hear_lent(const Arrival& arrival) {
  if (mesh_.lent().empty() || !arrival.is_remote || arrival.bytes == 0 ||
      arrival.bytes > kLentBytesMax) {
    corrupt("a lent frame that cannot be one");
    return false;
  }
  const RecordHeader& header = arrival.header;
  std::byte* const place = admit(header, arrival.lent_head.size());
  if (place == nullptr) return false;
  std::copy(arrival.lent_head.begin(), arrival.lent_head.end(), place);
  announced_[header.number] = {arrival.data, arrival.bytes};
  inbox_.finish(header.number);
  return true;
}

bool UcxEndpoint::hear_frame(const Arrival& arrival) {
  const RecordHeader& header = arrival.header;
  std::byte* const place = admit(header, arrival.bytes);
  if (place == nullptr) return false;
  if (arrival.is_remote) return begin_fetch(arrival, place);
  if (arrival.bytes > 0) std::memcpy(place, arrival.data, arrival.bytes);
  inbox_.finish(header.number);
  return false;
}

bool UcxEndpoint::begin_fetch(const Arrival& arrival, std::byte* place) {
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

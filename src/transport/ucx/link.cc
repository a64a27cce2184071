// link.cc: see link.hpp.
#include "transport/ucx/link.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/assert.hpp"
#include "transport/tcp/wire.hpp"

namespace tutti::transport::ucx {
namespace {

// How long a connection may have ended before what the peer still said, or another rank, tells why.
constexpr std::chrono::milliseconds kNewsTime{100};

}  // namespace

Link::Link(Mesh& mesh, Rank peer)
    : mesh_(mesh),
      f_(mesh.worker().functions()),
      peer_(peer),
      key_in_(mesh.key(peer, mesh.options().rank)),
      key_out_(mesh.key(mesh.options().rank, peer)) {}

// Ranks of one host watch each other's processes. Others count on UCX, which then leaves out the
// networks that cannot tell (in UCX 1.13 shared memory is one of them).
void Link::open() {
  if (opened()) return;
  const Card& card = mesh_.card_of(peer_);
  const bool near = mesh_.is_near(peer_);
  if (near && !mesh_.watch().add(peer_, card.process)) return lose("its process is gone");
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(card.address.data());
  parameters.err_mode = near ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = on_error;
  parameters.err_handler.arg = this;
  const ucs_status_t status = f_.ep_create(mesh_.worker().handle(), &parameters, &handle_);
  if (status == UCS_OK) return knock();
  handle_ = nullptr;
  lose(f_.status_string(status));
}

void Link::knock() {
  static const char kKnock = 'T';
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = on_knocked;
  parameters.user_data = this;
  void* const request =
      f_.tag_send_nbx(handle_, &kKnock, sizeof(kKnock), Worker::kKnockTag, &parameters);
  if (request == nullptr)
    ready_ = true;
  else if (UCS_PTR_IS_ERR(request))
    lose(f_.status_string(UCS_PTR_STATUS(request)));
}

void Link::on_knocked(void* request, ucs_status_t status, void* link) {
  Link& self = *static_cast<Link*>(link);
  self.f_.request_free(request);
  if (status == UCS_OK)
    self.ready_ = true;
  else
    self.lose(self.f_.status_string(status));
}

void Link::on_error(void* link, ucp_ep_h, ucs_status_t status) {
  Link& self = *static_cast<Link*>(link);
  self.lose(self.f_.status_string(status));
}

void Link::lose(std::string_view why) {
  if (why_.empty()) why_ = why.empty() ? "no reason given" : why;
  mesh_.note_ends(true);
}

void Link::on_sent(void* request, ucs_status_t status, void* user_data) {
  Sending& sending = *static_cast<Sending*>(user_data);
  Link& self = *sending.link;
  self.finish(sending, status == UCS_OK);
  if (status != UCS_OK) self.lose(self.f_.status_string(status));
  self.f_.request_free(request);
}

void Link::finish(Sending& sending, bool well) {
  sending.busy = false;
  unfinished_ -= 1;
  mesh_.unfinished() -= 1;
  if (sending.lent != nullptr) sending.lent->end(well);
}

void Link::send(Sending& sending, const Payload& payload) {
  TUTTI_ASSERT(!sending.busy, "a message is sent while UCX still has it");
  TUTTI_ASSERT(ready_, "a message is sent before there is a connection");
  if (lost()) return;
  sending.header.key = key_out_;
  sending.header.from = static_cast<std::uint32_t>(mesh_.options().rank);
  sending.busy = true;
  sending.link = this;
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.cb.send = on_sent;
  parameters.user_data = &sending;
  parameters.flags = payload.eager ? UCP_AM_SEND_FLAG_EAGER : 0;
  sending.lent = payload.lent;
  if (payload.lent != nullptr) {
    payload.lent->under_way += 1;
    parameters.flags = UCP_AM_SEND_FLAG_RNDV;
    payload.lent->describe(parameters);
  }
  unfinished_ += 1;
  mesh_.unfinished() += 1;
  const ucs_status_ptr_t request = f_.am_send_nbx(handle_, Worker::kMessageId, &sending.header,
                                                  kHeaderBytes + sending.lent_head_bytes,
                                                  payload.at, payload.bytes, &parameters);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) return;  // on_sent will be called
  finish(sending, request == nullptr);
  if (request != nullptr) lose(f_.status_string(UCS_PTR_STATUS(request)));
}

// ---- Ends ----

void Link::hear_failure(std::uint32_t words) {
  failed_words_ = words;
  mesh_.note_ends(true);
}

std::optional<Status> Link::judge() {
  if (failed_words_) {
    const auto failure = tcp::read_failed_words(*failed_words_, peer_);
    const bool of_use = failure && failure->culprit() < mesh_.options().size;
    // That it lost us says no more than that it is gone.
    const bool about_us = of_use && failure->code() == StatusCode::peer_lost &&
                          failure->culprit() == mesh_.options().rank;
    judged_ = true;
    if (of_use && !about_us) return failure;
    return Status(StatusCode::peer_lost, fmt::format("rank {} failed", peer_), peer_);
  }
  // What it sent before it ended may still lie in this rank's queues, its goodbye among it.
  if (!waited_for_news()) return std::nullopt;
  judged_ = true;
  return Status(StatusCode::peer_lost,
                fmt::format("rank {} {} ({})", peer_, met_ ? "is gone" : "cannot be reached", why_),
                peer_);
}

bool Link::waited_for_news() {
  const auto now = std::chrono::steady_clock::now();
  if (!ended_) ended_ = now;
  return now - *ended_ >= kNewsTime;
}

bool Link::say_last_words(const Status& failure) {
  open();
  if (said_last_words_ || left_ || lost()) return true;
  if (!ready_) return false;
  said_last_words_ = true;
  last_words_.header.kind = failure.ok() ? RecordKind::goodbye : RecordKind::failed;
  last_words_.header.tag = failure.ok() ? 0 : tcp::failed_words(failure);
  send(last_words_, {.eager = true});
  return true;
}

// Of one that is gone nothing is awaited; the worker's end ends the rest. What a peer still
// announces names our end of the connection: where deaths are not reported it does so by its
// address in our memory, which must hold it for as long as messages are taken. So that is only
// emptied, not closed.
bool Link::close() {
  if (handle_ != nullptr && !began_to_close_ && !lost() && !left_) {
    began_to_close_ = true;
    ucp_request_param_t parameters = {};
    closing_ = mesh_.is_near(peer_) ? f_.ep_flush_nbx(handle_, &parameters)
                                    : f_.ep_close_nbx(std::exchange(handle_, nullptr), &parameters);
    if (UCS_PTR_IS_ERR(closing_)) closing_ = nullptr;
  }
  if (closing_ == nullptr) return true;
  const bool waits = f_.request_check_status(closing_) == UCS_INPROGRESS && !lost() && !left_;
  if (!waits) stop_closing();
  return !waits;
}

// UCX insists on getting the request back before the worker ends, done or not.
void Link::stop_closing() {
  if (closing_ == nullptr) return;
  f_.request_free(std::exchange(closing_, nullptr));
}

}  // namespace tutti::transport::ucx

// carrier.cc: see carrier.hpp.
#include "runtime/gpu/host/carrier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/try.hpp"
#include "runtime/own_thread.hpp"

namespace tutti::runtime::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Since something moved: how long the core is only given away, and from when on looks are rare.
constexpr std::chrono::milliseconds kSoon{1};
constexpr std::chrono::milliseconds kLongAgo{100};
constexpr std::int64_t kSleepUs = 100;
constexpr std::int64_t kLongSleepUs = 1000;

// Offers: one letter, the sum of these.
constexpr int kSends = 1;     // from the device's memory
constexpr int kReceives = 2;  // into it

Result<int> read_offer(const std::string& text, Rank peer) {
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '0' + (kSends | kReceives))
    return text[0] - '0';
  return Status(StatusCode::corrupt_data, fmt::format("rank {} does not say how it carries", peer),
                peer);
}

}  // namespace

Result<std::unique_ptr<Carrier>> Carrier::make(Device& device, const ControlShape& shape,
                                               std::span<const Rank> peers,
                                               std::unique_ptr<Transport> transport,
                                               const NetworkWishes& wishes, Hear hear) {
  std::unique_ptr<Carrier> carrier(
      new Carrier(device, shape, std::move(transport), std::move(hear)));
  for (const Rank peer : peers) carrier->links_.push_back({.peer = peer});
  carrier->has_left_.resize(peers.size());
  carrier->allocate_payloads(wishes);
  TUTTI_TRY(carrier->allocate_control());
  return carrier;
}

// The transport lets go of what it was lent, before that goes.
Carrier::~Carrier() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    thread_.join();
  }
  proxy_.reset();
  const Status ended = device_.within([&] {
    transport_.reset();
    return Status();
  });
  if (!ended.ok()) transport_.reset();
}

// With payloads that do not lie in the device's memory.
Status Carrier::allocate_control() {
  const auto bytes_of_box = [&](const std::byte* payloads) {
    return payloads != nullptr ? shape_.payloads_at() : shape_.inbox_bytes();
  };
  for (ProxyLink& link : links_) {
    const std::size_t inbox_bytes = bytes_of_box(link.inbox_payloads);
    const auto memory = device_.allocate_shared(ControlShape::kNoticeBytes + inbox_bytes +
                                                bytes_of_box(link.outbox_payloads));
    TUTTI_TRY(memory);
    control_.emplace_back(
        *memory, [&device = device_](std::byte* shared) { device.deallocate_shared(shared); });
    link.notice = reinterpret_cast<std::uint64_t*>(*memory);
    link.inbox = *memory + ControlShape::kNoticeBytes;
    link.outbox = link.inbox + inbox_bytes;
    for (auto [payloads, box] : {std::pair(&link.inbox_payloads, link.inbox),
                                 std::pair(&link.outbox_payloads, link.outbox)})
      if (*payloads == nullptr) *payloads = box + shape_.payloads_at();
  }
  return Status();
}

// ---- Payloads ----

void Carrier::allocate_payloads(const NetworkWishes& wishes) {
  const NetworkAccess access = device_.network_access();
  const auto first = [](const std::string& one, const std::string& other) {
    return one.empty() ? other : one;
  };
  why_not_sent_ = first(wishes.why_no_reads, access.why_no_reads);
  why_not_received_ = first(wishes.why_no_writes, access.why_no_writes);
  if (!why_not_sent_.empty() && !why_not_received_.empty()) return;
  Status lent = transport_->can_lend(access.kind);
  if (lent.ok()) lent = device_.within([&] { return lend_payloads(access.kind); });
  if (!lent.ok()) use_no_device(lent.message());
}

// A piece for each peer, because a peer that fetches from one is told of all of it.
Status Carrier::lend_payloads(MemoryKind kind) {
  const std::size_t outbox_bytes = why_not_sent_.empty() ? shape_.payload_bytes() : 0;
  const std::size_t bytes = outbox_bytes + (why_not_received_.empty() ? shape_.payload_bytes() : 0);
  for (ProxyLink& link : links_) {
    const auto memory = device_.allocate(bytes);
    TUTTI_TRY(memory);
    device_bytes_ += bytes;
    payloads_.emplace_back(*memory,
                           [&device = device_](std::byte* piece) { device.deallocate(piece); });
    const auto region = transport_->lend({payloads_.back(), bytes, kind});
    TUTTI_TRY(region);
    if (why_not_sent_.empty()) {
      link.outbox_payloads = *memory;
      link.lent_outbox = {*region, 0, shape_.payload_bytes()};
    }
    if (why_not_received_.empty()) {
      link.inbox_payloads = *memory + outbox_bytes;
      link.lent_inbox = {*region, outbox_bytes, shape_.payload_bytes()};
    }
  }
  return Status();
}

// What has been allocated by then stays: to give memory back may wait for all that the device does,
// calls of other worlds among it, whose peers may be waiting for this world to be made.
void Carrier::use_no_device(const std::string& why) {
  for (std::string* const reason : {&why_not_sent_, &why_not_received_})
    if (reason->empty()) *reason = why;
  for (ProxyLink& link : links_) link = {.peer = link.peer};
}

std::string Carrier::offer() const {
  const int offer =
      (why_not_sent_.empty() ? kSends : 0) + (why_not_received_.empty() ? kReceives : 0);
  return std::string(1, static_cast<char>('0' + offer));
}

// Payloads are lent where the sender has them in its device's memory, or the receiver wants them
// in its own.
Status Carrier::start(std::span<const std::string> offers) {
  const bool sends = why_not_sent_.empty();
  const bool receives = why_not_received_.empty();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    ProxyLink& link = links_[i];
    const auto offer = read_offer(offers[static_cast<std::size_t>(link.peer)], link.peer);
    TUTTI_TRY(offer);
    if (!sends && (*offer & kReceives) != 0)
      TUTTI_TRY(lend_of_host(link.outbox_payloads, control_[i], link.lent_outbox));
    if (!receives && (*offer & kSends) != 0)
      TUTTI_TRY(lend_of_host(link.inbox_payloads, control_[i], link.lent_inbox));
  }
  Proxy::Flush flush;
  if (receives) flush = [this] { return device_.flush_network_writes(); };
  auto proxy = Proxy::make(*transport_, shape_, links_, std::move(flush));
  TUTTI_TRY(proxy);
  proxy_ = std::make_unique<Proxy>(*std::move(proxy));
  auto thread = begin_own_thread("tutti-carrier", [this] { run(); });
  TUTTI_TRY(thread);
  thread_ = *std::move(thread);
  return Status();
}

Status Carrier::lend_of_host(std::byte* payloads, const Piece& control, LentPlace& place) {
  const auto region =
      transport_->lend({Piece(control, payloads), shape_.payload_bytes(), MemoryKind::host});
  TUTTI_TRY(region);
  place = {*region, 0, shape_.payload_bytes()};
  return Status();
}

std::string Carrier::describe() const {
  const auto tell = [](const char* what, const std::string& why_not) {
    return why_not.empty() ? fmt::format("{} device memory", what)
                           : fmt::format("{} page-locked memory ({})", what, why_not);
  };
  if (why_not_sent_ == why_not_received_)
    return tell("sends from and receives into", why_not_sent_);
  return tell("sends from", why_not_sent_) + ", " + tell("receives into", why_not_received_);
}

void Carrier::link(Links& links) const {
  for (const ProxyLink& link : links_) {
    const auto peer = static_cast<std::size_t>(link.peer);
    links.inboxes[peer] = link.inbox;
    links.outboxes[peer] = link.outbox;
    links.inbox_payloads[peer] = link.inbox_payloads;
    links.outbox_payloads[peer] = link.outbox_payloads;
    links.notices[peer] = link.notice;
  }
}

void Carrier::give_notice(std::uint64_t notice) const {
  for (const ProxyLink& link : links_)
    std::atomic_ref(*link.notice).store(notice, std::memory_order_release);
}

void Carrier::leave(std::chrono::nanoseconds at_most) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.wait_for(lock, at_most, [&] { return told_all_; });
}

bool Carrier::has_left(Rank peer) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (links_[i].peer == peer) return has_left_[i];
  return false;
}

bool Carrier::have_all_left() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(has_left_.begin(), has_left_.end(), [](bool left) { return left; });
}

bool Carrier::has_peer(Rank peer) const {
  return std::any_of(links_.begin(), links_.end(),
                     [&](const ProxyLink& link) { return link.peer == peer; });
}

Status Carrier::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// True when anything moved.
bool Carrier::step() {
  const bool moved = proxy_->poll();
  for (const std::uint64_t notice : proxy_->take_notices()) hear_(notice);
  const bool told_all = proxy_->has_told_all();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < links_.size(); ++i) has_left_[i] = proxy_->has_left(links_[i].peer);
  failure_ = proxy_->failure();
  if (leaving_) proxy_->leave();
  if (told_all && !std::exchange(told_all_, true)) changed_.notify_all();
  return moved;
}

void Carrier::run() {
  if (const Status ran = device_.within([this] { return carry(), Status(); }); !ran.ok()) carry();
}

// With a last step at the end, so that notices which kernels left behind are told.
void Carrier::carry() {
  Clock::time_point moved_at = Clock::now();
  while (true) {
    bool ends = false;
    {
      const std::lock_guard lock(mutex_);
      ends = ends_;
    }
    const bool moved = step();
    if (ends) return;
    const Clock::time_point now = Clock::now();
    if (moved) moved_at = now;
    if (now - moved_at < kSoon)
      std::this_thread::yield();
    else
      transport_->sleep(now - moved_at < kLongAgo ? kSleepUs : kLongSleepUs);
  }
}

}  // namespace tutti::runtime::gpu

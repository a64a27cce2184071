// carrier.cc: see carrier.hpp.
#include "runtime/gpu/host/carrier.hpp"

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

}  // namespace

Result<std::unique_ptr<Carrier>> Carrier::make(Device& device, const ControlShape& shape,
                                               std::span<const Rank> peers,
                                               std::unique_ptr<Transport> transport, Hear hear) {
  std::unique_ptr<Carrier> carrier(new Carrier(device, std::move(transport), std::move(hear)));
  TUTTI_TRY(carrier->allocate(shape, peers));
  auto proxy = Proxy::make(*carrier->transport_, shape, carrier->links_);
  TUTTI_TRY(proxy);
  carrier->proxy_ = std::make_unique<Proxy>(*std::move(proxy));
  carrier->has_left_.resize(peers.size());
  auto thread = begin_own_thread("tutti-carrier", [raw = carrier.get()] { raw->run(); });
  TUTTI_TRY(thread);
  carrier->thread_ = *std::move(thread);
  return carrier;
}

Carrier::~Carrier() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    thread_.join();
  }
  proxy_.reset();
  transport_.reset();
  for (std::byte* const memory : memory_) device_.deallocate_shared(memory);
}

// A piece for each peer: a notice, its inbox, and its outbox.
Status Carrier::allocate(const ControlShape& shape, std::span<const Rank> peers) {
  for (const Rank peer : peers) {
    const auto memory =
        device_.allocate_shared(ControlShape::kNoticeBytes + 2 * shape.inbox_bytes());
    TUTTI_TRY(memory);
    memory_.push_back(*memory);
    std::byte* const inbox = *memory + ControlShape::kNoticeBytes;
    links_.push_back(
        {peer, inbox, inbox + shape.inbox_bytes(), reinterpret_cast<std::uint64_t*>(*memory)});
  }
  return Status();
}

void Carrier::link(Links& links) const {
  for (const ProxyLink& link : links_) {
    const auto peer = static_cast<std::size_t>(link.peer);
    links.inboxes[peer] = link.inbox;
    links.outboxes[peer] = link.outbox;
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

// With a last step at the end, so that notices which kernels left behind are told.
void Carrier::run() {
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

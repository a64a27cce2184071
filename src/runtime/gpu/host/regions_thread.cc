// regions_thread.cc: what a rank's thread does for its peers: it maps what they ask for, lets go of
// it, and notes what they say of the own regions. See regions.hpp; what is mapped part by part:
// regions_parts.cc.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/try.hpp"
#include "runtime/gpu/host/regions.hpp"
#include "transport/bootstrap/local_socket.hpp"

namespace tutti::runtime::gpu {
namespace {

// For the own blocks to leave a call that has failed, in which they may touch a peer's memory.
constexpr std::chrono::seconds kLeaveTime{2};
// Between looks at whether the device is idle, where the driver has something to forget.
constexpr int kIdleLookMs = 1;
// Callers that have not said who they are.
constexpr std::size_t kStrangersMax = 256;

}  // namespace

void Regions::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (ends_) break;
    }
    welcome();
    const bool heard = hear_all();
    forget_if_idle();
    map_postponed();
    if (!heard) wait_for_news();
  }
  // Before the lines end, by which peers know it.
  while (!mapped_.empty()) let_go(mapped_.begin());
  for (Mapped& mapped : let_go_) forget(mapped);
  let_go_.clear();
}

void Regions::wait_for_news() {
  std::vector<pollfd> polled{{bell_.number(), POLLIN, 0}, {listener_.number(), POLLIN, 0}};
  for (const RegionLine& stranger : strangers_)
    polled.push_back({stranger.socket().number(), POLLIN, 0});
  {
    const std::lock_guard lock(mutex_);
    for (const Peer& peer : peers_) {
      const auto events = static_cast<short>(peer.line.has_more() ? POLLIN | POLLOUT : POLLIN);
      if (peer.line.socket().open()) polled.push_back({peer.line.socket().number(), events, 0});
    }
  }
  ::poll(polled.data(), polled.size(), let_go_.empty() ? -1 : kIdleLookMs);
  std::uint64_t rung = 0;
  static_cast<void>(!::read(bell_.number(), &rung, sizeof rung));
}

void Regions::welcome() {
  if (!listener_.open()) return;
  std::string origin;
  while (auto socket = transport::accept_local(listener_, origin)) {
    if (strangers_.size() == kStrangersMax) strangers_.erase(strangers_.begin());
    strangers_.emplace_back().take(std::move(socket));
  }
  for (RegionLine& stranger : strangers_)
    if (const auto hello = stranger.hear()) take_stranger(stranger, hello->news);
  strangers_.erase(
      std::remove_if(strangers_.begin(), strangers_.end(),
                     [](const RegionLine& stranger) { return !stranger.socket().open(); }),
      strangers_.end());
  const std::lock_guard lock(mutex_);
  const auto is_missing = [&](const Peer& peer) {
    return peer.who.rank > rank_ && !peer.line.socket().open() && !peer.line.is_lost();
  };
  if (std::none_of(peers_.begin(), peers_.end(), is_missing)) listener_.close();
}

// One that knows the secret is the rank that it says it is; another one is sent away.
void Regions::take_stranger(RegionLine& stranger, const RegionNews& hello) {
  base::Descriptor socket = stranger.give();
  if (hello.word != RegionWord::hello || hello.secret != door_.secret) return;
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_)
    if (peer.who.rank == hello.from && peer.who.rank > rank_ && !peer.line.socket().open() &&
        !peer.line.is_lost()) {
      peer.line.take(std::move(socket));
      peer.line.flush();
      return;
    }
}

// True when anything was said.
bool Regions::hear_all() {
  bool any = false;
  for (Peer& peer : peers_) {
    std::optional<HeardNews> heard;
    bool has_ended = false;
    {
      const std::lock_guard lock(mutex_);
      peer.line.flush();
      heard = peer.line.hear();
      has_ended = peer.line.is_lost() && !std::exchange(peer.has_ended, true);
      if (has_ended) {
        own_->lost(peer.who.rank);
        changed_.notify_all();
      }
    }
    if (has_ended) lose_parts(peer);
    if (!heard) continue;
    any = true;
    handle(peer, *std::move(heard));
  }
  return any;
}

void Regions::say(Peer& peer, RegionNews news, base::Descriptor descriptor) {
  news.from = rank_;
  const std::lock_guard lock(mutex_);
  say_to(peer, news, std::move(descriptor));
}

void Regions::handle(Peer& peer, HeardNews heard) {
  const RegionNews news = heard.news;
  switch (news.word) {
    case RegionWord::open:
      return news.part > 0 ? begin_parts(peer, news) : map(peer, news);
    case RegionWord::close:
    case RegionWord::close_now: {
      if (!unmap(peer, news)) return;
      RegionNews answer = news;
      answer.word = RegionWord::closed;
      return say(peer, answer);
    }
    case RegionWord::want:
      return give_part(peer, news);
    case RegionWord::part:
    case RegionWord::no_part:
      return take_part(peer, std::move(heard));
    case RegionWord::hello:
    case RegionWord::opened:
    case RegionWord::refused:
    case RegionWord::closed:
      break;
  }
  handle_answer(peer, news);
}

void Regions::handle_answer(const Peer& peer, const RegionNews& news) {
  if (news.word == RegionWord::refused) return refuse(peer.who.rank, news);
  const std::lock_guard lock(mutex_);
  if (news.word == RegionWord::opened &&
      own_->heard_opened(peer.who.rank, news.region, news.generation))
    static_cast<void>(memory_->set_gate(news.region, news.generation));
  if (news.word == RegionWord::closed)
    own_->heard_closed(peer.who.rank, news.region, news.generation);
  changed_.notify_all();
}

// An own region stays closed, because of `rank`.
void Regions::refuse(Rank rank, const RegionNews& news) {
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    is_new = own_->heard_refused(rank, news.region, news.generation);
    changed_.notify_all();
  }
  if (is_new && tell_)
    tell_(fmt::format("registered memory goes through slots: rank {}: {}", rank, news.why.data()));
}

Status Regions::check_new(const Peer& peer, const RegionNews& news) const {
  const bool waits =
      std::any_of(peer.postponed.begin(), peer.postponed.end(),
                  [&](const RegionNews& other) { return other.region == news.region; });
  if (news.region < kRegionCount || news.region >= kSharedRegionCount || waits ||
      mapped_.count({peer.who.rank, news.region}) != 0)
    return Status(StatusCode::corrupt_data,
                  fmt::format("{} is no number of a new region", news.region));
  return Status();
}

void Regions::map(Peer& peer, const RegionNews& news) {
  if (const auto answer = try_to_map(peer, news))
    say(peer, *answer);
  else
    peer.postponed.push_back(news);
}

// The answer; none: it has to wait.
std::optional<RegionNews> Regions::try_to_map(const Peer& peer, const RegionNews& news) {
  RegionNews answer = news;
  answer.word = RegionWord::refused;
  const auto refuse = [&](const std::string& why) {
    answer.set_why(why);
    return answer;
  };
  if (const Status fits = check_new(peer, news); !fits.ok()) return refuse(fits.message());
  Mapped made;
  made.generation = news.generation;
  made.imported = !peer.who.same_process;
  if (made.imported) {
    const auto imported = import(news);
    if (!imported.ok() && !let_go_.empty()) return std::nullopt;
    if (!imported.ok()) return refuse(imported.status().message());
    made.base = *imported;
  } else {
    made.base = reinterpret_cast<std::byte*>(news.address);  // NOLINT(*-int-to-ptr)
  }
  if (const Status told = memory_->set_region(peer.who.rank, news.region, made.base); !told.ok()) {
    if (made.imported) memory_->device().forget_memory(made.base);
    return refuse(told.message());
  }
  mapped_[{peer.who.rank, news.region}] = std::move(made);
  answer.word = RegionWord::opened;
  return answer;
}

// What has the address of an allocation that is gone, the driver does not map beside it.
Result<std::byte*> Regions::import(const RegionNews& news) {
  auto imported = memory_->device().import_memory(news.handle);
  if (imported.ok() || let_go_.empty()) return imported;
  forget_if_idle();
  return let_go_.empty() ? memory_->device().import_memory(news.handle) : imported;
}

// False: kernels may still use it, and it stays until they are gone.
bool Regions::unmap(Peer& peer, const RegionNews& news) {
  peer.postponed.erase(
      std::remove_if(peer.postponed.begin(), peer.postponed.end(),
                     [&](const RegionNews& other) { return other.region == news.region; }),
      peer.postponed.end());
  const auto found = mapped_.find({peer.who.rank, news.region});
  if (found == mapped_.end() || found->second.generation != news.generation) return true;
  if (found->second.base == nullptr) return give_up_parts(peer, news.region), true;
  if (news.word == RegionWord::close_now && !wait_for_visits(Clock::now() + kLeaveTime))
    return false;
  let_go(found);
  return true;
}

// No kernel finds it any more.
void Regions::let_go(MappedMap::iterator mapped) {
  const auto [peer, region] = mapped->first;
  if (mapped->second.base != nullptr) static_cast<void>(memory_->set_region(peer, region, nullptr));
  if (mapped->second.imported || mapped->second.parts) let_go_.push_back(std::move(mapped->second));
  mapped_.erase(mapped);
}

// The driver waits for all that the device does before it forgets a mapping, and lets nobody else
// in meanwhile. What a kernel waits for may be a rank that waits for this thread, or an abort that
// the driver would not let through.
void Regions::forget_if_idle() {
  if (let_go_.empty()) return;
  const std::lock_guard lock(launching_);
  if (!is_idle_() || !nobody_visits()) return;
  for (Mapped& mapped : let_go_) forget(mapped);
  let_go_.clear();
}

// What was in the way is gone.
void Regions::map_postponed() {
  if (!let_go_.empty()) return;
  for (Peer& peer : peers_)
    for (const RegionNews& news : std::exchange(peer.postponed, {})) map(peer, news);
}

void Regions::forget(Mapped& mapped) {
  if (mapped.imported) memory_->device().forget_memory(mapped.base);
  mapped.parts.reset();
}

}  // namespace tutti::runtime::gpu

// regions_thread.cc: what a rank's thread does for its peers: it maps what they ask for, lets go of
// it, and notes what they say of the own regions. See regions.hpp.
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
    if (!hear_all()) wait_for_news();
  }
  // Before the lines end, by which peers know it.
  for (const auto& [place, mapped] : mapped_) forget(place.first, place.second, mapped);
  mapped_.clear();
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
  ::poll(polled.data(), polled.size(), -1);
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
    if (const auto hello = stranger.hear()) take_stranger(stranger, *hello);
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
    std::optional<RegionNews> news;
    {
      const std::lock_guard lock(mutex_);
      peer.line.flush();
      news = peer.line.hear();
      if (peer.line.is_lost() && !std::exchange(peer.has_ended, true)) {
        own_->lost(peer.who.rank);
        changed_.notify_all();
      }
    }
    if (!news) continue;
    any = true;
    handle(peer, *news);
  }
  return any;
}

void Regions::handle(Peer& peer, const RegionNews& news) {
  if (news.word == RegionWord::open) {
    const RegionNews answer = map(peer, news);
    const std::lock_guard lock(mutex_);
    return peer.line.say(answer);
  }
  if (news.word == RegionWord::close || news.word == RegionWord::close_now) {
    if (!unmap(peer, news)) return;
    RegionNews answer = news;
    answer.word = RegionWord::closed;
    answer.from = rank_;
    const std::lock_guard lock(mutex_);
    return peer.line.say(answer);
  }
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    if (news.word == RegionWord::opened &&
        own_->heard_opened(peer.who.rank, news.region, news.generation))
      static_cast<void>(memory_->set_gate(news.region, news.generation));
    if (news.word == RegionWord::refused)
      is_new = own_->heard_refused(peer.who.rank, news.region, news.generation);
    if (news.word == RegionWord::closed)
      own_->heard_closed(peer.who.rank, news.region, news.generation);
    changed_.notify_all();
  }
  if (is_new && tell_)
    tell_(fmt::format("registered memory goes through slots: rank {}: {}", peer.who.rank,
                      news.why.data()));
}

// The answer.
RegionNews Regions::map(const Peer& peer, const RegionNews& news) {
  RegionNews answer = news;
  answer.word = RegionWord::refused;
  answer.from = rank_;
  const auto refuse = [&](const std::string& why) {
    answer.set_why(why);
    return answer;
  };
  const std::pair place(peer.who.rank, news.region);
  if (news.region < kRegionCount || news.region >= kSharedRegionCount || mapped_.count(place) != 0)
    return refuse(fmt::format("{} is no number of a new region", news.region));
  Mapped made{news.generation, nullptr, !peer.who.same_process};
  if (made.imported) {
    const auto imported = memory_->device().import_memory(news.handle);
    if (!imported.ok()) return refuse(imported.status().message());
    made.base = *imported;
  } else {
    made.base = reinterpret_cast<std::byte*>(news.address);  // NOLINT(*-int-to-ptr)
  }
  if (const Status told = memory_->set_region(peer.who.rank, news.region, made.base); !told.ok()) {
    if (made.imported) memory_->device().forget_memory(made.base);
    return refuse(told.message());
  }
  mapped_[place] = made;
  answer.word = RegionWord::opened;
  return answer;
}

// False: kernels may still use it, and it stays until they are gone.
bool Regions::unmap(const Peer& peer, const RegionNews& news) {
  const auto found = mapped_.find({peer.who.rank, news.region});
  if (found == mapped_.end() || found->second.generation != news.generation) return true;
  if (news.word == RegionWord::close_now && !wait_for_visits(Clock::now() + kLeaveTime))
    return false;
  forget(peer.who.rank, news.region, found->second);
  mapped_.erase(found);
  return true;
}

void Regions::forget(Rank peer, std::uint32_t region, const Mapped& mapped) {
  static_cast<void>(memory_->set_region(peer, region, nullptr));
  if (mapped.imported) memory_->device().forget_memory(mapped.base);
}

}  // namespace tutti::runtime::gpu

// regions.cc: see regions.hpp: a rank's own regions. What it does for its peers: regions_thread.cc,
// regions_parts.cc.
#include "runtime/gpu/host/regions.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/try.hpp"
#include "runtime/own_thread.hpp"
#include "transport/bootstrap/local_socket.hpp"

namespace tutti::runtime::gpu {
namespace {

// Those of which the host waits for somebody are over in no time, unless somebody is stopped.
constexpr std::chrono::seconds kLetGoTime{5};
constexpr std::chrono::microseconds kLook{50};  // between looks at blocks that are in a call

using Phase = OwnRegions::Region::Phase;

}  // namespace

Result<std::unique_ptr<Regions>> Regions::make(Tell tell) {
  std::unique_ptr<Regions> made(new Regions(std::move(tell)));
  const auto door = make_region_door();
  TUTTI_TRY(door);
  made->door_ = *door;
  auto listener = transport::listen_at_name(door->name.data());
  TUTTI_TRY(listener);
  made->listener_ = *std::move(listener);
  made->bell_ = base::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->bell_.open()) return transport::system_failure("eventfd", errno);
  return made;
}

Status Regions::connect(const RankMemory& memory, Rank rank, const std::vector<RegionPeer>& peers,
                        Idle is_idle) {
  memory_ = &memory;
  rank_ = rank;
  is_idle_ = std::move(is_idle);
  std::set<Rank> all;
  for (const RegionPeer& peer : peers) {
    all.insert(peer.rank);
    peers_.emplace_back().who = peer;
  }
  own_ = std::make_unique<OwnRegions>(kRegionCount, kSharedRegionCount, std::move(all));
  for (Peer& peer : peers_)
    if (peer.who.rank < rank)
      TUTTI_TRY(connect_to(peer).with_context(fmt::format("rank {}", peer.who.rank)));
  auto thread = begin_own_thread("tutti-regions", [this] { run(); });
  TUTTI_TRY(thread);
  thread_ = *std::move(thread);
  return Status();
}

Status Regions::connect_to(Peer& peer) {
  auto socket = transport::connect_to_name(peer.who.door.name.data());
  TUTTI_TRY(socket);
  peer.line.take(*std::move(socket));
  RegionNews hello;
  hello.from = rank_;
  hello.secret = peer.who.door.secret;
  peer.line.say(hello);
  return Status();
}

Regions::~Regions() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
  // Also where a child of this process has copies of the sockets.
  for (const Peer& peer : peers_)
    if (peer.line.socket().open()) ::shutdown(peer.line.socket().number(), SHUT_RDWR);
}

void Regions::lose(Rank peer) {
  const std::lock_guard lock(mutex_);
  own_->lost(peer);
  changed_.notify_all();
}

void Regions::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.number(), &one, sizeof one));
}

// A line that is full is the thread's to go on with, and one that has ended its to note: the thread
// may have looked at it before, and nothing comes from there that would wake it. Requires  the
// lock.
void Regions::say_to(Peer& peer, const RegionNews& news, base::Descriptor descriptor) {
  peer.line.say(news, std::move(descriptor));
  if (peer.line.has_more() || (peer.line.is_lost() && !peer.has_ended)) wake();
}

// Requires  the lock.
void Regions::say_to_all(const RegionNews& news) {
  for (Peer& peer : peers_) say_to(peer, news);
}

Result<Regions::Registration> Regions::add(const std::byte* memory, std::size_t bytes) {
  const auto shared = memory_->device().share_memory(memory, bytes);
  TUTTI_TRY(shared);
  const std::lock_guard lock(mutex_);
  const auto added = own_->add(memory, bytes, shared->allocation, shared->parts);
  TUTTI_TRY(added);
  changes_.fetch_add(1, std::memory_order_release);
  if (!added->is_new) return added->registration;
  RegionNews news;
  news.word = RegionWord::open;
  news.from = rank_;
  news.region = added->region;
  news.generation = own_->at(added->region).generation;
  news.address = reinterpret_cast<std::uintptr_t>(shared->allocation.begin);
  news.bytes = shared->allocation.bytes;
  news.handle = shared->handle;
  if (shared->parts) news.part = static_cast<std::uint32_t>(shared->parts->count());
  say_to_all(news);
  return added->registration;
}

Status Regions::remove(Registration registration, const Failed& has_failed) {
  std::vector<std::uint32_t> closing;
  {
    const std::lock_guard lock(mutex_);
    const auto region = own_->remove(registration);
    TUTTI_TRY(region);
    changes_.fetch_add(1, std::memory_order_release);
    if (!*region) return Status();
    closing.push_back(**region);
    TUTTI_TRY(memory_->set_gate(**region, 0));
  }
  return close(closing, has_failed);
}

Status Regions::remove_all(const Failed& has_failed) {
  std::vector<std::uint32_t> closing;
  {
    const std::lock_guard lock(mutex_);
    closing = own_->remove_all();
    changes_.fetch_add(1, std::memory_order_release);
    for (const std::uint32_t region : closing) TUTTI_TRY(memory_->set_gate(region, 0));
  }
  return closing.empty() ? Status() : close(closing, has_failed);
}

// Their gates are closed. Peers may have heard nothing of it, and do not need to: what they do with
// this memory they do in calls that the own blocks are in.
Status Regions::close(const std::vector<std::uint32_t>& regions, const Failed& has_failed) {
  const auto deadline = Clock::now() + kLetGoTime;
  if (!wait_for_visits(deadline))
    return Status(StatusCode::timeout,
                  fmt::format("rank {}: a call is under way that may use this memory; it must not "
                              "be given back before",
                              rank_));
  const bool failed = has_failed();  // those that have been waited for, too
  std::unique_lock lock(mutex_);
  for (const std::uint32_t number : regions) {
    if (own_->at(number).phase != Phase::closing) continue;
    RegionNews news;
    news.word = failed ? RegionWord::close_now : RegionWord::close;
    news.from = rank_;
    news.region = number;
    news.generation = own_->at(number).generation;
    own_->told_to_close(number);
    say_to_all(news);
  }
  const auto all_gone = [&] {
    return std::all_of(regions.begin(), regions.end(), [&](std::uint32_t number) {
      return own_->at(number).phase != Phase::closing;
    });
  };
  if (changed_.wait_until(lock, deadline, all_gone)) return Status();
  return Status(StatusCode::timeout,
                fmt::format("rank {}: a peer has not let go of this memory, or is stopped", rank_));
}

// A block that begins a call now sees that a gate is closed.
bool Regions::wait_for_visits(Clock::time_point deadline) const {
  for (std::uint32_t channel = 0; channel < memory_->shape().channels; ++channel) {
    const auto first = memory_->visits(channel);
    if (!first.ok() || *first % 2 == 0) continue;  // of a device that has failed, nothing is left
    for (auto now = first; now.ok() && *now == *first; now = memory_->visits(channel)) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kLook);
    }
  }
  return true;
}

// Of calls that were captured, nobody else knows whether they are on the device.
bool Regions::nobody_visits() const {
  for (std::uint32_t channel = 0; channel < memory_->shape().channels; ++channel)
    if (const auto visits = memory_->visits(channel); visits.ok() && *visits % 2 != 0) return false;
  return true;
}

MemoryRef Regions::find(const std::byte* memory, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return own_->find(memory, bytes);
}

bool Regions::is_open(const std::byte* memory, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const MemoryRef found = own_->find(memory, bytes);
  return found.region != 0 && own_->at(found.region).phase == Phase::open;
}

}  // namespace tutti::runtime::gpu

// regions_parts.cc: see regions.hpp: how ranks hand each other memory that was made part by part.
//
// A rank that is told of such a region keeps room for it and asks for one part after the other, of
// one region of a peer after the other: whatever there is to be mapped, a single descriptor is
// under way to it. What it answers in the end is what it answers for memory in one piece. A peer
// that never gives a part leaves its own region closed, and nobody waits for that.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.hpp"
#include "runtime/gpu/host/regions.hpp"

namespace tutti::runtime::gpu {
namespace {

// Descriptors that have not gone yet, of a peer that asks and does not listen.
constexpr std::size_t kUnsentMax = 16;

RegionNews refusal(const RegionNews& news, const std::string& why) {
  RegionNews answer = news;
  answer.word = RegionWord::refused;
  answer.kind = PartKind::none;
  answer.set_why(why);
  return answer;
}

}  // namespace

void Regions::begin_parts(Peer& peer, const RegionNews& news) {
  Status fits = check_new(peer, news);
  if (fits.ok() &&
      (news.part > kRegionPartsMax || news.bytes < news.part || news.bytes > kRegionBytesMax))
    fits = Status(StatusCode::corrupt_data,
                  fmt::format("there are no {} bytes in {} parts", news.bytes, news.part));
  if (!fits.ok()) return say(peer, refusal(news, fits.message()));
  auto parts = memory_->device().reserve_parts(static_cast<std::size_t>(news.bytes));
  if (!parts.ok()) return say(peer, refusal(news, parts.status().message()));
  Mapped made;
  made.generation = news.generation;
  made.parts = *std::move(parts);
  made.count = news.part;
  made.bytes = news.bytes;
  mapped_[{peer.who.rank, news.region}] = std::move(made);
  peer.missing.push_back(news.region);
  if (peer.missing.size() == 1) ask_for_part(peer);
}

// The first one that is missing of what the peer has.
void Regions::ask_for_part(Peer& peer) {
  if (peer.missing.empty()) return;
  const Mapped& mapped = mapped_.at({peer.who.rank, peer.missing.front()});
  RegionNews news;
  news.word = RegionWord::want;
  news.region = peer.missing.front();
  news.generation = mapped.generation;
  news.part = mapped.next;
  say(peer, news);
}

// Of an own region. What cannot be given is of no use to the others either.
void Regions::give_part(Peer& peer, const RegionNews& news) {
  std::shared_ptr<SharedParts> parts;
  std::size_t unsent = 0;
  {
    const std::lock_guard lock(mutex_);
    parts = own_->parts_of(news.region, news.generation);
    unsent = peer.line.unsent_descriptors();
  }
  RegionNews answer = news;
  answer.word = RegionWord::no_part;
  answer.kind = PartKind::none;
  if (!parts || news.part >= parts->count() || unsent >= kUnsentMax) {
    answer.set_why("there is no such part (any more)");
    return say(peer, answer);
  }
  auto key = parts->key(news.part);
  if (!key.ok()) {
    answer.set_why(key.status().message());
    refuse(rank_, answer);
    return say(peer, answer);
  }
  answer.word = RegionWord::part;
  answer.kind = key->descriptor.open() ? PartKind::descriptor : PartKind::handle;
  answer.bytes = parts->bytes(news.part);
  answer.handle = key->handle;
  say(peer, answer, std::move(key->descriptor));
}

// What comes for a region that was closed meanwhile is of no use.
void Regions::take_part(Peer& peer, HeardNews heard) {
  const RegionNews news = heard.news;
  if (peer.missing.empty() || peer.missing.front() != news.region) return;
  Mapped& mapped = mapped_.at({peer.who.rank, news.region});
  if (mapped.generation != news.generation || mapped.next != news.part) return;
  if (news.word == RegionWord::no_part) return give_up_parts(peer, news.region);
  Status status = add_part(mapped, std::move(heard));
  const bool is_last = mapped.next == mapped.count;
  if (status.ok() && is_last) status = open_parts(peer, news.region, mapped);
  if (!status.ok()) {
    say(peer, refusal(news, status.message()));
    return give_up_parts(peer, news.region);
  }
  if (is_last) {
    peer.missing.pop_front();
    RegionNews answer = news;
    answer.word = RegionWord::opened;
    answer.kind = PartKind::none;
    say(peer, answer);
  }
  ask_for_part(peer);
}

Status Regions::add_part(Mapped& mapped, HeardNews heard) {
  const RegionNews news = heard.news;
  if (news.bytes == 0 || news.bytes > mapped.bytes - mapped.got)
    return Status(StatusCode::corrupt_data,
                  fmt::format("part {} of {} bytes is too long", news.part, news.bytes));
  if (news.kind == PartKind::descriptor && !heard.descriptor.open())
    return Status(
        StatusCode::system_error,
        fmt::format("the descriptor of part {} has not come: too many are open", news.part));
  if (news.kind != PartKind::descriptor && news.kind != PartKind::handle)
    return Status(StatusCode::corrupt_data, fmt::format("part {} has no key", news.part));
  PartKey key;
  key.handle = news.handle;
  key.descriptor = std::move(heard.descriptor);
  TUTTI_TRY(mapped.parts->add(key, static_cast<std::size_t>(news.bytes)));
  mapped.got += news.bytes;
  ++mapped.next;
  return Status();
}

Status Regions::open_parts(const Peer& peer, std::uint32_t region, Mapped& mapped) {
  if (mapped.got != mapped.bytes)
    return Status(StatusCode::corrupt_data, fmt::format("{} parts have {} of {} bytes",
                                                        mapped.count, mapped.got, mapped.bytes));
  TUTTI_TRY(mapped.parts->open());
  std::byte* const base = mapped.parts->begin();
  TUTTI_TRY(memory_->set_region(peer.who.rank, region, base));
  mapped.base = base;
  return Status();
}

// And asks for what comes behind it.
void Regions::give_up_parts(Peer& peer, std::uint32_t region) {
  const bool was_asked_for = !peer.missing.empty() && peer.missing.front() == region;
  peer.missing.erase(std::remove(peer.missing.begin(), peer.missing.end(), region),
                     peer.missing.end());
  if (const auto found = mapped_.find({peer.who.rank, region}); found != mapped_.end())
    let_go(found);
  if (was_asked_for) ask_for_part(peer);
}

// Of a peer that is gone: nobody's kernels have seen them.
void Regions::lose_parts(Peer& peer) {
  for (const std::uint32_t region : peer.missing)
    if (const auto found = mapped_.find({peer.who.rank, region}); found != mapped_.end())
      let_go(found);
  peer.missing.clear();
  peer.postponed.clear();
}

}  // namespace tutti::runtime::gpu

// Splitting needs no meeting point: the ranks exchange what they must over the communicator that
// they have. Ranks of different colors make their communicators at the same time and may need
// different numbers of exchanges, so they go on in rounds until all of them say that they are done.
#include "runtime/split.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/world.hpp"
#include "runtime/world_offer.hpp"

namespace tutti::runtime {
namespace {

constexpr char kBlob = 'B';
constexpr char kDone = 'D';

using Blobs = std::vector<std::string>;

// An all-gather of strings of different lengths, by two of the parent's own: lengths, then bytes.
Result<Blobs> gather(CommunicatorState& parent, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(parent.size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  CommunicatorState::Request request;
  request.collective = Collective::all_gather;
  request.type = DataType::int64;
  request.count = 1;
  request.input = &length;
  request.output = lengths.data();
  TUTTI_TRY(parent.run(request));
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  const std::size_t words = (longest + 3) / 4;
  std::vector<std::int32_t> padded(words);
  std::memcpy(padded.data(), mine.data(), mine.size());
  std::vector<std::int32_t> all(words * ranks);
  request.type = DataType::int32;
  request.count = words;
  request.input = padded.data();
  request.output = all.data();
  TUTTI_TRY(parent.run(request));
  Blobs blobs;
  for (std::size_t r = 0; r < ranks; ++r)
    blobs.emplace_back(reinterpret_cast<const char*>(all.data() + r * words),
                       static_cast<std::size_t>(lengths[r]));
  return blobs;
}

struct Member {
  int key;
  Rank rank;  // in the parent
  friend auto operator<=>(const Member&, const Member&) = default;
};

// The ranks of my color in their new order.
Result<std::vector<Member>> find_members(CommunicatorState& parent, int color, int key) {
  const std::int64_t mine[] = {color, key};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(parent.size()));
  CommunicatorState::Request request;
  request.collective = Collective::all_gather;
  request.type = DataType::int64;
  request.count = 2;
  request.input = mine;
  request.output = all.data();
  TUTTI_TRY(parent.run(request));
  std::vector<Member> members;
  for (Rank r = 0; r < parent.size(); ++r)
    if (all[2 * static_cast<std::size_t>(r)] == color)
      members.push_back({static_cast<int>(all[2 * static_cast<std::size_t>(r) + 1]), r});
  std::sort(members.begin(), members.end());
  return members;
}

Status gave_up_splitting(Rank rank) {
  return Status(StatusCode::peer_lost, fmt::format("rank {} gave up splitting", rank), rank);
}

// Ranks that are threads share their new world, which the first member makes and holds out in
// `offer` until all have it.
Status share_threads(CommunicatorState& parent, const std::vector<Member>& group, Members& child,
                     std::optional<WorldOffer>& offer) {
  if (!child.threads) return Status();
  const bool leads = child.rank == 0 && child.size > 0;
  if (leads) {
    child.threads = transport::MemoryWorld::make(
        transport_options(parent.parts().config, child, parent.parts().ranks_share_cores));
    offer.emplace(child.threads);
  }
  const auto blobs = gather(parent, leads ? offer->ticket() : std::string());
  TUTTI_TRY(blobs);
  if (leads || child.size == 0) return Status();
  child.threads = WorldOffer::take((*blobs)[static_cast<std::size_t>(group[0].rank)]);
  if (child.threads) return Status();
  // It has failed, which the parent knows, or is about to.
  TUTTI_TRY(gather(parent, {}));
  return gave_up_splitting(group[0].rank);
}

std::uint64_t child_context(std::uint64_t parent, std::uint32_t split, int color) {
  std::uint64_t mixed = parent * 0x9e3779b97f4a7c15ULL + split;
  mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ULL + static_cast<std::uint32_t>(color);
  return mixed ^ (mixed >> 32);
}

std::vector<Rank> ranks_of(const std::vector<Member>& group) {
  std::vector<Rank> ranks;
  for (const Member& member : group) ranks.push_back(member.rank);
  return ranks;
}

// What the first `size` of a group are to each other, but for how they talk.
Members child_of(CommunicatorState& parent, const std::vector<Member>& group, int color,
                 std::size_t size) {
  Members child = parent.parts().members;
  child.context = child_context(child.context, parent.next_split(), color);
  child.size = static_cast<int>(size);
  for (int i = 0; i < child.size; ++i)
    if (group[static_cast<std::size_t>(i)].rank == parent.rank()) child.rank = i;
  child.choose_job_ranks(parent.parts().members, ranks_of(group));
  return child;
}

std::function<Status()> bad_news_of(CommunicatorState& parent, std::vector<Rank> ranks) {
  return [&parent, ranks = std::move(ranks)] {
    const std::vector<bool> nobody(static_cast<std::size_t>(parent.size()));
    return of_child(parent.look_for_deaths(nobody), ranks);
  };
}

// Makes what the child needs exchanges for, on all ranks of the parent: in rounds, until every rank
// is done, however many exchanges it needed. Failures name ranks of the parent, also the child's.
template <class Make>
std::invoke_result_t<Make> in_rounds(CommunicatorState& parent, const std::vector<Member>& group,
                                     Members& child, Make make) {
  Status gave_up;
  child.exchange = [&](const std::string& mine) -> Result<Blobs> {
    auto blobs = gather(parent, kBlob + mine);
    if (!blobs.ok()) return blobs;
    Blobs ours;
    for (const Member& member : group) {
      const std::string& blob = (*blobs)[static_cast<std::size_t>(member.rank)];
      if (blob.empty() || blob[0] != kBlob) return gave_up = gave_up_splitting(member.rank);
      ours.push_back(blob.substr(1));
    }
    return ours;
  };
  auto made = make();
  for (bool all_done = false; !all_done;) {
    auto blobs = gather(parent, std::string(1, kDone));
    if (!blobs.ok()) return blobs.status();
    all_done = std::all_of(blobs->begin(), blobs->end(), [](const std::string& blob) {
      return !blob.empty() && blob[0] == kDone;
    });
  }
  if (!gave_up.ok()) return gave_up;
  if (!made.ok()) return of_parent(made.status(), ranks_of(group));
  return made;
}

}  // namespace

Status of_child(const Status& status, const std::vector<Rank>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), status.culprit());
  if (found == ranks.end()) return status;
  return Status(status.code(), status.message(), static_cast<int>(found - ranks.begin()));
}

Status of_parent(const Status& status, const std::vector<Rank>& ranks) {
  const int whom = status.culprit();
  if (whom < 0 || whom >= static_cast<int>(ranks.size())) return status;
  const Rank rank = ranks[static_cast<std::size_t>(whom)];
  return Status(
      status.code(),
      fmt::format("rank {}, {} of the new communicator: {}", rank, whom, status.message()), rank);
}

Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key) {
  auto group = find_members(parent, color, key);
  if (!group.ok()) return group.status();
  Members child = child_of(parent, *group, color, color < 0 ? 0 : group->size());
  const std::vector<Rank> ranks = ranks_of(*group);
  child.bad_news = bad_news_of(parent, ranks);
  std::optional<WorldOffer> offer;
  TUTTI_TRY(share_threads(parent, *group, child, offer));
  using Made = Result<std::shared_ptr<CommunicatorState>>;
  return in_rounds(parent, *group, child, [&]() -> Made {
    if (child.size == 0) return std::shared_ptr<CommunicatorState>();
    return make_communicator(child, parent.parts().config, parent.parts().options);
  });
}

Result<std::unique_ptr<Transport>> connect_beside(CommunicatorState& parent) {
  std::vector<Member> group;
  for (Rank rank = 0; rank < parent.size(); ++rank) group.push_back({rank, rank});
  Members beside = child_of(parent, group, 0, group.size());
  beside.bad_news = bad_news_of(parent, ranks_of(group));
  std::optional<WorldOffer> offer;
  TUTTI_TRY(share_threads(parent, group, beside, offer));
  return in_rounds(parent, group, beside, [&] { return connect_as(beside, parent.parts()); });
}

}  // namespace tutti::runtime

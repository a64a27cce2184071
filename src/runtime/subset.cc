// The members exchange what a communicator needs by messages to each other, so that those who are
// left out need not take part.
#include "runtime/subset.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/host.hpp"
#include "runtime/split.hpp"
#include "runtime/world.hpp"
#include "runtime/world_offer.hpp"

namespace tutti::runtime {
namespace {

using Blobs = std::vector<std::string>;

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

// All-gathers among some ranks of a communicator.
class Circle {
 public:
  Circle(CommunicatorState& parent, const std::vector<Rank>& ranks)
      : parent_(parent),
        ranks_(ranks),
        mine_(static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), parent.rank()) -
                                       ranks.begin())) {}

  std::size_t mine() const { return mine_; }

  // Strings of different lengths: first how long they are, then what they are.
  Result<Blobs> gather(const std::string& blob) {
    const std::uint64_t length = blob.size();
    std::vector<std::uint64_t> lengths(ranks_.size(), length);
    std::vector<Part> parts;
    for (std::uint64_t& each : lengths) parts.push_back({&each, sizeof each});
    TUTTI_TRY(swap(&length, sizeof length, parts));
    Blobs blobs;
    for (const std::uint64_t each : lengths) {
      if (each > kBlobBytesMax)
        return Status(StatusCode::corrupt_data,
                      fmt::format("rank {}: a member announced {} bytes to make a communicator",
                                  parent_.rank(), each));
      blobs.emplace_back(each, '\0');
    }
    parts.clear();
    for (std::string& each : blobs) parts.push_back({each.data(), each.size()});
    TUTTI_TRY(swap(blob.data(), blob.size(), parts));
    blobs[mine_] = blob;
    return blobs;
  }

 private:
  static constexpr std::uint64_t kBlobBytesMax = 16 << 20;

  struct Part {
    void* memory;
    std::size_t bytes;
  };

  // `mine` to every other member, and theirs into their parts.
  Status swap(const void* mine, std::size_t bytes, const std::vector<Part>& parts) {
    parent_.group_begin();
    Status kept;
    for (std::size_t i = 0; i < ranks_.size() && kept.ok(); ++i)
      if (i != mine_) kept = keep(ranks_[i], -1, const_cast<void*>(mine), bytes);
    for (std::size_t i = 0; i < ranks_.size() && kept.ok(); ++i)
      if (i != mine_) kept = keep(-1, ranks_[i], parts[i].memory, parts[i].bytes);
    Result<std::vector<Work>> works = parent_.group_end();
    TUTTI_TRY(kept);
    TUTTI_TRY(works);
    Status first;
    for (Work& work : *works)
      if (const Status status = work.wait(); first.ok()) first = status;
    return first;
  }

  Status keep(Rank to, Rank from, void* memory, std::size_t bytes) {
    Request request;
    request.collective = Collective::send_recv;
    request.type = DataType::uint8;
    request.count = bytes;
    request.to = to;
    request.from = from;
    request.input = to >= 0 ? memory : nullptr;
    request.output = from >= 0 ? memory : nullptr;
    return parent_.run(request);
  }

  CommunicatorState& parent_;
  const std::vector<Rank>& ranks_;
  std::size_t mine_;
};

template <typename T>
std::string as_bytes(const T& value) {
  std::string text(sizeof value, '\0');
  std::memcpy(text.data(), &value, sizeof value);
  return text;
}

// The value of the first member.
template <typename T>
Result<T> agree_on(Circle& circle, const T& mine) {
  auto blobs = circle.gather(as_bytes(mine));
  TUTTI_TRY(blobs);
  if (blobs->front().size() != sizeof(T))
    return Status(StatusCode::corrupt_data, "a member of a new communicator says something else");
  T value;
  std::memcpy(&value, blobs->front().data(), sizeof value);
  return value;
}

// Ranks that are threads share their new world, which the first member makes and holds out until
// all have it.
Status share_threads(CommunicatorState& parent, Circle& circle, Members& child, Rank first) {
  std::optional<WorldOffer> offer;
  if (child.rank == 0) {
    child.threads = transport::MemoryWorld::make(
        transport_options(parent.parts().config, child, parent.parts().ranks_share_cores));
    offer.emplace(child.threads);
  }
  const auto tickets = circle.gather(offer ? offer->ticket() : std::string());
  TUTTI_TRY(tickets);
  if (!offer) child.threads = WorldOffer::take(tickets->front());
  TUTTI_TRY(circle.gather({}));
  if (child.threads) return Status();
  return Status(StatusCode::peer_lost, fmt::format("rank {} gave up making a communicator", first),
                first);
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> make_subset(CommunicatorState& parent,
                                                       const std::vector<Rank>& ranks) {
  Circle circle(parent, ranks);
  Members child = parent.parts().members;
  child.size = static_cast<int>(ranks.size());
  child.rank = static_cast<Rank>(circle.mine());
  const auto context = agree_on(circle, draw_job());
  TUTTI_TRY(context);
  child.context = *context;
  child.choose_job_ranks(parent.parts().members, ranks);
  // A member that dies ends it; who was left out may do what it likes.
  std::vector<bool> others(at(parent.size()), true);
  for (const Rank rank : ranks) others[at(rank)] = false;
  child.bad_news = [&] { return of_child(parent.look_for_deaths(others), ranks); };
  if (child.threads) TUTTI_TRY(share_threads(parent, circle, child, ranks.front()));
  child.exchange = [&](const std::string& mine) { return circle.gather(mine); };
  return make_communicator(child, parent.parts().config, parent.parts().options);
}

}  // namespace tutti::runtime

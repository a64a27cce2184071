// apart.cc: see apart.hpp.
#include "perf/floors/apart.hpp"

#include <algorithm>

namespace tutti::floors {
namespace {

constexpr std::size_t kChunks[] = {std::size_t{4} << 10, std::size_t{16} << 10,
                                   std::size_t{32} << 10, std::size_t{64} << 10};
constexpr std::size_t kLine = 64;
// Slots do not begin at the same place of a page; see the buffers in floor_peer.cc.
constexpr std::size_t kStagger = 3 * kLine;

std::byte* input(const Call& call, std::size_t held) {
  return static_cast<std::byte*>(call.ranks[held].input);
}
std::byte* output(const Call& call, std::size_t held) {
  return static_cast<std::byte*>(call.ranks[held].output);
}

void move(std::byte* to, const std::byte* from, std::size_t bytes, Stores stores) {
  copy({to, nullptr}, from, bytes, stores);
}

}  // namespace

Apart::Apart(Workers& workers, int ranks, std::byte* memory)
    : workers_(workers),
      memory_(memory),
      ranks_(static_cast<std::size_t>(ranks)),
      held_(ranks_ / 2),
      first_(static_cast<std::size_t>(workers.index()) * held_) {}

auto Apart::methods(Operation operation) -> std::vector<Method> {
  switch (operation) {
    case Operation::all_reduce:
      return {{"apart", false, {&Apart::post_slice, &Apart::add_slices}},
              {"apart, parts", true, {&Apart::post_parts, &Apart::add_part, &Apart::take_parts}}};
    case Operation::all_gather:
      return {{"apart", false, {&Apart::post_slice, &Apart::take_slices}}};
    case Operation::reduce_scatter:
      return {{"apart", false, {&Apart::post_blocks, &Apart::add_block}}};
    case Operation::all_to_all:
      return {{"apart", false, {&Apart::post_blocks, &Apart::take_blocks}}};
    case Operation::broadcast:
      return {{"apart", false, {&Apart::post_slice, &Apart::take_root}}};
  }
  return {};
}

std::vector<Way> Apart::ways(const Call& call) {
  std::vector<Way> result;
  for (const Method& method : methods(call.operation)) {
    const std::size_t length = call.block_bytes() / (method.in_parts ? ranks_ : 1);
    for (const std::size_t chunk : kChunks) {
      const bool least = chunk == kChunks[0];
      if (!have_room(chunk) || (chunk > length && !least)) continue;
      for (const Stores stores : {Stores::plain, Stores::streamed}) {
        const std::vector<Stores> useful = stores_for(length);
        if (std::find(useful.begin(), useful.end(), stores) == useful.end()) continue;
        const std::string name =
            std::string(method.name) + " by " + std::to_string(chunk >> 10) + " KiB";
        result.push_back({named(name.c_str(), stores),
                          [=, this](const Call& c) { run(c, method, chunk, stores); }});
      }
    }
  }
  return result;
}

bool Apart::have_room(std::size_t chunk) const {
  return 2 * ranks_ * (ranks_ + 1) * (chunk + kStagger) <= kBytes;
}

std::byte* Apart::slot(std::size_t from, std::size_t to) const {
  const std::size_t half = turn_ % 2;
  return memory_ + ((half * ranks_ + from) * (ranks_ + 1) + to) * (chunk_ + kStagger);
}

// At whole lines, and what is left over is the last one's.
Part Apart::part_of(std::size_t rank) const {
  const std::size_t begin = std::min(rank * part_ + at_, block_);
  const std::size_t end = std::min(rank + 1 == ranks_ ? block_ : (rank + 1) * part_, block_);
  return {begin, std::min(chunk_, end > begin ? end - begin : 0)};
}

// A slot that is filled again was read a slice ago, by ranks that have met ours since.
void Apart::run(const Call& call, const Method& method, std::size_t chunk, Stores stores) {
  block_ = call.block_bytes();
  part_ = method.in_parts ? (block_ + ranks_ * kLine - 1) / (ranks_ * kLine) * kLine : block_;
  chunk_ = chunk;
  stores_ = stores;
  for (at_ = 0; at_ < part_; at_ += chunk) {
    for (const Stage stage : method.stages) {
      if (stage != method.stages.front()) workers_.meet();
      for (std::size_t held = 0; held < held_; ++held) (this->*stage)(call, held);
    }
    ++turn_;
  }
}

// ---- What a rank tells others ----

void Apart::post_slice(const Call& call, std::size_t held) {
  if (call.operation == Operation::broadcast && first_ + held != 0) return;
  move(slot_for_all(first_ + held), input(call, held) + at_, std::min(chunk_, block_ - at_),
       Stores::plain);
}

void Apart::post_parts(const Call& call, std::size_t held) {
  for (std::size_t to = 0; to < ranks_; ++to) {
    if (to == first_ + held) continue;
    const Part part = part_of(to);
    move(slot(first_ + held, to), input(call, held) + part.begin, part.bytes, Stores::plain);
  }
}

void Apart::post_blocks(const Call& call, std::size_t held) {
  const std::size_t bytes = std::min(chunk_, block_ - at_);
  for (std::size_t to = 0; to < ranks_; ++to)
    if (to != first_ + held)
      move(slot(first_ + held, to), input(call, held) + to * block_ + at_, bytes, Stores::plain);
}

// ---- What it makes of what others have told ----

void Apart::add_slices(const Call& call, std::size_t held) {
  Few from;
  from.add(input(call, held) + at_);
  for (std::size_t other = 0; other < ranks_; ++other)
    if (other != first_ + held) from.add(slot_for_all(other));
  Few to;
  to.add(output(call, held) + at_);
  sum(call.type, to, from, std::min(chunk_, block_ - at_), stores_);
}

// Into the cache for the others, and from there to its place.
void Apart::add_part(const Call& call, std::size_t held) {
  const std::size_t rank = first_ + held;
  const Part part = part_of(rank);
  Few from;
  from.add(input(call, held) + part.begin);
  for (std::size_t other = 0; other < ranks_; ++other)
    if (other != rank) from.add(slot(other, rank));
  Few to;
  to.add(slot_for_all(rank));
  if (stores_ == Stores::plain) to.add(output(call, held) + part.begin);
  sum(call.type, to, from, part.bytes, Stores::plain);
  if (stores_ != Stores::plain)
    move(output(call, held) + part.begin, slot_for_all(rank), part.bytes, stores_);
}

void Apart::add_block(const Call& call, std::size_t held) {
  const std::size_t rank = first_ + held;
  Few from;
  from.add(input(call, held) + rank * block_ + at_);
  for (std::size_t other = 0; other < ranks_; ++other)
    if (other != rank) from.add(slot(other, rank));
  Few to;
  to.add(output(call, held) + at_);
  sum(call.type, to, from, std::min(chunk_, block_ - at_), stores_);
}

void Apart::take_parts(const Call& call, std::size_t held) {
  for (std::size_t from = 0; from < ranks_; ++from) {
    if (from == first_ + held) continue;
    const Part part = part_of(from);
    move(output(call, held) + part.begin, slot_for_all(from), part.bytes, stores_);
  }
}

void Apart::take_slices(const Call& call, std::size_t held) {
  const std::size_t bytes = std::min(chunk_, block_ - at_);
  for (std::size_t from = 0; from < ranks_; ++from) {
    const bool own = from == first_ + held;
    move(output(call, held) + from * block_ + at_,
         own ? input(call, held) + at_ : slot_for_all(from), bytes, stores_);
  }
}

void Apart::take_blocks(const Call& call, std::size_t held) {
  const std::size_t rank = first_ + held;
  const std::size_t bytes = std::min(chunk_, block_ - at_);
  for (std::size_t from = 0; from < ranks_; ++from)
    move(output(call, held) + from * block_ + at_,
         from == rank ? input(call, held) + rank * block_ + at_ : slot(from, rank), bytes, stores_);
}

void Apart::take_root(const Call& call, std::size_t held) {
  if (first_ + held != 0)
    move(output(call, held) + at_, slot_for_all(0), std::min(chunk_, block_ - at_), stores_);
}

}  // namespace tutti::floors

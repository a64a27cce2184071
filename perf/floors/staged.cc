// staged.cc: the floor where buffers are private: their bytes go through slots of shared memory
// that stay in the cache, or the system copies them from one process to the other.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "perf/floors/apart.hpp"
#include "perf/floors/attach.hpp"
#include "perf/floors/lines.hpp"
#include "perf/floors/pipe.hpp"

namespace tutti::floors {
namespace {

constexpr std::size_t kChunks[] = {std::size_t{4} << 10, std::size_t{32} << 10,
                                   std::size_t{128} << 10, std::size_t{256} << 10};
constexpr std::size_t kMostChunksPerBlock = 64;  // more of them are not worth trying
constexpr std::size_t kAttachFrom = 16384;       // a system call costs what less bytes do
constexpr std::size_t kScratch = std::size_t{64} << 10;

// Of more than two ranks, all but short messages are the affair of apart.hpp.
class Staged : public Floor {
 public:
  Staged(Workers& workers, int ranks)
      : workers_(workers),
        held_(static_cast<std::size_t>(ranks / 2)),
        mine_(static_cast<std::size_t>(workers.index()) * held_),
        theirs_(static_cast<std::size_t>(workers.other()) * held_),
        lines_(workers, ranks),
        first_(workers, workers.common() + Lines::kBytes),
        second_(workers, workers.common() + Lines::kBytes + Pipe::kBytes),
        attach_(workers, workers.common() + Lines::kBytes + 2 * Pipe::kBytes),
        apart_(workers, ranks, workers.common() + Workers::kCommonBytes - Apart::kBytes) {
    static_assert(Lines::kBytes + 2 * Pipe::kBytes + Attach::kBytes + Apart::kBytes <=
                  Workers::kCommonBytes);
  }

  std::string describe() const override {
    return "two workers that move bytes between private buffers";
  }

  std::vector<Way> ways(const Call& call) override {
    std::vector<Way> result = lines_.ways(call);
    if (held_ > 1) {
      for (Way& way : apart_.ways(call)) result.push_back(std::move(way));
      return result;
    }
    for (const Stores stores : {Stores::plain, Stores::streamed}) {
      const std::vector<Stores> useful = stores_for(call.block_bytes());
      if (std::find(useful.begin(), useful.end(), stores) == useful.end()) continue;
      for (const std::size_t chunk : kChunks)
        if (useful_chunk(chunk, call.block_bytes())) add_slots(call, chunk, stores, result);
      if (call.block_bytes() >= kAttachFrom) add_attach(call, stores, result);
    }
    return result;
  }

 private:
  using Method = void (Staged::*)(const Call&, std::size_t chunk, Stores);

  static bool useful_chunk(std::size_t chunk, std::size_t block) {
    const bool least = chunk == kChunks[0];
    const bool most = chunk == kChunks[3];
    return (least || chunk <= block) && (most || block / chunk <= kMostChunksPerBlock);
  }

  void add_slots(const Call& call, std::size_t chunk, Stores stores, std::vector<Way>& ways) {
    const std::string by = " by " + std::to_string(chunk >> 10) + " KiB";
    const auto offer = [&](const std::string& name, Method run) {
      ways.push_back({named((name + by).c_str(), stores),
                      [=, this](const Call& c) { (this->*run)(c, chunk, stores); }});
    };
    switch (call.operation) {
      case Operation::all_reduce:
        offer("slots", &Staged::reduce_whole);
        return offer("slots, halves", &Staged::reduce_halves);
      case Operation::all_gather:
        return offer("slots", &Staged::gather);
      case Operation::reduce_scatter:
        return offer("slots", &Staged::reduce_scatter);
      case Operation::all_to_all:
        return offer("slots", &Staged::all_to_all);
      case Operation::broadcast:
        return offer("slots", &Staged::broadcast);
    }
  }

  // The system stores as it likes, so that there are other stores only where we add. Only for two
  // ranks: each read of several would be a call of its own.
  void add_attach(const Call& call, Stores stores, std::vector<Way>& ways) {
    if (held_ != 1 || (stores != Stores::plain && !comparison::sums(call.operation))) return;
    const auto offer = [&](const char* name, Method run) {
      ways.push_back(
          {named(name, stores), [=, this](const Call& c) { (this->*run)(c, kScratch, stores); }});
    };
    switch (call.operation) {
      case Operation::all_reduce:
        offer("attach", &Staged::attach_reduce_whole);
        return offer("attach, halves", &Staged::attach_reduce_halves);
      case Operation::all_gather:
      case Operation::all_to_all:
        return offer("attach", &Staged::attach_blocks);
      case Operation::reduce_scatter:
        return offer("attach", &Staged::attach_reduce_scatter);
      case Operation::broadcast:
        offer("attach", &Staged::attach_broadcast);
        return offer("attach, both", &Staged::attach_broadcast_by_both);
    }
  }

  static std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }
  Few ins(const Call& call, std::size_t at) const {
    Few few;
    for (const comparison::Buffers& buffers : call.ranks) few.add(bytes(buffers.input) + at);
    return few;
  }
  Few outs(const Call& call, std::size_t at) const {
    Few few;
    for (const comparison::Buffers& buffers : call.ranks) few.add(bytes(buffers.output) + at);
    return few;
  }
  static Few one(std::byte* place) {
    Few few;
    few.add(place);
    return few;
  }
  static Few with(Few few, std::byte* place) {
    few.add(place);
    return few;
  }

  // Fills slots and empties the other's, chunk by chunk, one chunk ahead.
  template <class Fill, class Empty>
  void exchange(std::size_t length, std::size_t chunk, Fill fill, Empty take) {
    const auto fill_at = [&](std::size_t at) {
      if (at >= length) return;
      fill(first_.empty(), at, std::min(chunk, length - at));
      first_.full();
    };
    fill_at(0);
    for (std::size_t at = 0; at < length; at += chunk) {
      fill_at(at + chunk);
      take(first_.next(), at, std::min(chunk, length - at));
      first_.taken();
    }
  }

  // All of the input goes across; each adds all of it.
  void reduce_whole(const Call& call, std::size_t chunk, Stores stores) {
    exchange(
        call.block_bytes(), chunk,
        [&](std::byte* slot, std::size_t at, std::size_t length) {
          sum(call.type, one(slot), ins(call, at), length, Stores::plain);
        },
        [&](std::byte* slot, std::size_t at, std::size_t length) {
          sum(call.type, outs(call, at), with(ins(call, at), slot), length, stores);
        });
  }

  // Half of the input goes across, and half of the result comes back.
  void reduce_halves(const Call& call, std::size_t chunk, Stores stores) {
    const Part here = half(call.block_bytes(), workers_.index());
    const Part there = half(call.block_bytes(), workers_.other());
    const std::size_t longest = std::max(here.bytes, there.bytes);
    const auto fetch = [&](std::size_t at) {
      const std::size_t length = there.bytes > at ? std::min(chunk, there.bytes - at) : 0;
      sum(call.type, outs(call, there.begin + at), one(second_.next()), length, stores);
      second_.taken();
    };
    const auto clipped = [&](const Part& part, std::size_t at) {
      return part.bytes > at ? std::min(chunk, part.bytes - at) : 0;
    };
    const auto give = [&](std::size_t at) {
      if (at >= longest) return;
      sum(call.type, one(first_.empty()), ins(call, there.begin + at), clipped(there, at),
          Stores::plain);
      first_.full();
    };
    give(0);
    for (std::size_t at = 0; at < longest; at += chunk) {
      give(at + chunk);
      const std::size_t place = here.begin + at;
      // Out of the slot once, into the cache for the other and, from there, to its place.
      std::byte* result = second_.empty();
      const Few from = with(ins(call, place), first_.next());
      if (stores == Stores::streamed) {
        sum(call.type, one(result), from, clipped(here, at), Stores::plain);
        sum(call.type, outs(call, place), one(result), clipped(here, at), stores);
      } else {
        sum(call.type, with(outs(call, place), result), from, clipped(here, at), stores);
      }
      first_.taken();
      second_.full();
      if (at > 0) fetch(at - chunk);
    }
    fetch((longest - 1) / chunk * chunk);
  }

  void gather(const Call& call, std::size_t chunk, Stores stores) {
    const std::size_t block = call.block_bytes();
    for (std::size_t i = 0; i < held_; ++i)
      exchange(
          block, chunk,
          [&](std::byte* slot, std::size_t at, std::size_t length) {
            const Few from = one(bytes(call.ranks[i].input) + at);
            sum(call.type, one(slot), from, length, Stores::plain);
            sum(call.type, outs(call, (mine_ + i) * block + at), from, length, stores);
          },
          [&](std::byte* slot, std::size_t at, std::size_t length) {
            sum(call.type, outs(call, (theirs_ + i) * block + at), one(slot), length, stores);
          });
  }

  void reduce_scatter(const Call& call, std::size_t chunk, Stores stores) {
    const std::size_t block = call.block_bytes();
    for (std::size_t i = 0; i < held_; ++i)
      exchange(
          block, chunk,
          [&](std::byte* slot, std::size_t at, std::size_t length) {
            sum(call.type, one(slot), ins(call, (theirs_ + i) * block + at), length, Stores::plain);
          },
          [&](std::byte* slot, std::size_t at, std::size_t length) {
            sum(call.type, one(bytes(call.ranks[i].output) + at),
                with(ins(call, (mine_ + i) * block + at), slot), length, stores);
          });
  }

  void all_to_all(const Call& call, std::size_t chunk, Stores stores) {
    const std::size_t block = call.block_bytes();
    for (std::size_t from = 0; from < held_; ++from)
      for (std::size_t to = 0; to < held_; ++to)
        exchange(
            block, chunk,
            [&](std::byte* slot, std::size_t at, std::size_t length) {
              std::byte* input = bytes(call.ranks[from].input) + at;
              copy({slot, nullptr}, input + (theirs_ + to) * block, length, Stores::plain);
              copy({bytes(call.ranks[to].output) + (mine_ + from) * block + at, nullptr},
                   input + (mine_ + to) * block, length, stores);
            },
            [&](std::byte* slot, std::size_t at, std::size_t length) {
              copy({bytes(call.ranks[to].output) + (theirs_ + from) * block + at, nullptr}, slot,
                   length, stores);
            });
  }

  void broadcast(const Call& call, std::size_t chunk, Stores stores) {
    for (std::size_t at = 0; at < call.block_bytes(); at += chunk) {
      const std::size_t length = std::min(chunk, call.block_bytes() - at);
      if (workers_.index() == 0) {
        const std::byte* from = bytes(call.ranks[0].input) + at;
        copy({first_.empty(), nullptr}, from, length, Stores::plain);
        first_.full();
        for (std::size_t i = 1; i < held_; ++i)
          copy({bytes(call.ranks[i].output) + at, nullptr}, from, length, stores);
      } else {
        sum(call.type, outs(call, at), one(first_.next()), length, stores);
        first_.taken();
      }
    }
  }

  // to = mine + what the other has at that place, through memory that stays in the cache.
  void attach_sum(const Call& call, std::byte* to, const std::byte* mine, const std::byte* other,
                  std::size_t length, std::size_t chunk, Stores stores) {
    alignas(4096) static std::byte scratch[kScratch];
    for (std::size_t at = 0; at < length; at += chunk) {
      const std::size_t now = std::min(chunk, length - at);
      attach_.read(scratch, other + at, now);
      add(call.type, {to + at, nullptr}, mine + at, scratch, now, stores);
    }
  }

  void attach_reduce_whole(const Call& call, std::size_t chunk, Stores stores) {
    const comparison::Buffers other = attach_.enter(call.ranks[0]);
    attach_sum(call, bytes(call.output()), bytes(call.ranks[0].input), bytes(other.input),
               call.block_bytes(), chunk, stores);
    workers_.meet();
  }

  void attach_reduce_halves(const Call& call, std::size_t chunk, Stores stores) {
    const Part here = half(call.block_bytes(), workers_.index());
    const Part there = half(call.block_bytes(), workers_.other());
    const comparison::Buffers other = attach_.enter(call.ranks[0]);
    const comparison::Buffers& own = call.ranks[0];
    attach_sum(call, bytes(own.output) + here.begin, bytes(own.input) + here.begin,
               bytes(other.input) + here.begin, here.bytes, chunk, stores);
    workers_.meet();
    attach_.read(bytes(own.output) + there.begin, bytes(other.output) + there.begin, there.bytes);
    workers_.meet();
  }

  void attach_reduce_scatter(const Call& call, std::size_t chunk, Stores stores) {
    const comparison::Buffers other = attach_.enter(call.ranks[0]);
    const std::size_t place = mine_ * call.block_bytes();
    attach_sum(call, bytes(call.ranks[0].output), bytes(call.ranks[0].input) + place,
               bytes(other.input) + place, call.block_bytes(), chunk, stores);
    workers_.meet();
  }

  void attach_blocks(const Call& call, std::size_t, Stores) {
    const bool many = call.operation == Operation::all_to_all;
    const std::size_t block = call.block_bytes();
    const std::size_t place = many ? mine_ * block : 0;
    const comparison::Buffers& own = call.ranks[0];
    copy({bytes(own.output) + mine_ * block, nullptr}, bytes(own.input) + place, block,
         Stores::plain);
    const comparison::Buffers other = attach_.enter(own);
    attach_.read(bytes(own.output) + theirs_ * block, bytes(other.input) + place, block);
    workers_.meet();
  }

  void attach_broadcast(const Call& call, std::size_t, Stores) {
    const comparison::Buffers other = attach_.enter(call.ranks[0]);
    if (workers_.index() == 1)
      attach_.read(bytes(call.ranks[0].output), bytes(other.input), call.block_bytes());
    workers_.meet();
  }

  void attach_broadcast_by_both(const Call& call, std::size_t, Stores) {
    const Part part = half(call.block_bytes(), workers_.index());
    const comparison::Buffers other = attach_.enter(call.ranks[0]);
    if (workers_.index() == 1)
      attach_.read(bytes(call.ranks[0].output) + part.begin, bytes(other.input) + part.begin,
                   part.bytes);
    else
      attach_.write(bytes(other.output) + part.begin, bytes(call.ranks[0].input) + part.begin,
                    part.bytes);
    workers_.meet();
  }

  Workers& workers_;
  std::size_t held_;
  std::size_t mine_;    // the first of the ranks that we hold
  std::size_t theirs_;  // the first of the other's
  Lines lines_;
  Pipe first_;
  Pipe second_;  // where an operation needs two
  Attach attach_;
  Apart apart_;
};

}  // namespace

std::unique_ptr<Floor> make_floor(Workers& workers, int ranks) {
  return std::make_unique<Staged>(workers, ranks);
}

bool buffers_are_shared() { return false; }

}  // namespace tutti::floors

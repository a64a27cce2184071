// lines.cc: see lines.hpp. A line holds 56 bytes and the number of its turn, so that one transfer
// between the cores brings both; or all lines are data and one more says that they are there.
#include "perf/floors/lines.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::floors {
namespace {

constexpr std::size_t kLineData = 56;
constexpr std::uint64_t kTurns = 16;  // that a sender may be ahead

}  // namespace

struct alignas(64) Lines::Line {
  std::byte data[kLineData];
  std::atomic<std::uint64_t> turn;
};

// What its owner writes, except that `done` is of the turns that it has read of the other's.
struct Lines::Mailbox {
  struct Turn {
    Line lines[kMostBytes / kLineData + 1];
    alignas(64) std::byte data[kMostBytes];
    Flag full;
  };
  Turn turns[kTurns];
  Flag done;
};

Lines::Lines(Workers& workers, int ranks) : workers_(workers), held_(ranks / 2) {
  static_assert(2 * sizeof(Mailbox) <= kBytes);
}

Lines::Mailbox& Lines::box(int owner) const {
  return reinterpret_cast<Mailbox*>(workers_.common())[owner];
}

bool Lines::sends(const Call& call) const {
  return call.operation != Operation::broadcast || workers_.index() == 0;
}
bool Lines::receives(const Call& call) const {
  return call.operation != Operation::broadcast || workers_.index() == 1;
}

std::vector<Way> Lines::ways(const Call& call) {
  if (message_bytes(call) > kMostBytes) return {};
  return {{"lines", [this](const Call& c) { run(c, true); }},
          {"lines and a flag", [this](const Call& c) { run(c, false); }}};
}

std::size_t Lines::message_bytes(const Call& call) const {
  const auto held = static_cast<std::size_t>(held_);
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::broadcast:
      return call.block_bytes();
    case Operation::all_gather:
    case Operation::reduce_scatter:
      return held * call.block_bytes();
    case Operation::all_to_all:
      return held * held * call.block_bytes();
  }
  return 0;
}

Few Lines::own(const Call& call, bool output, std::size_t at) const {
  Few few;
  for (const comparison::Buffers& buffers : call.ranks)
    few.add(static_cast<std::byte*>(output ? buffers.output : buffers.input) + at);
  return few;
}

// One rank's is where it lies; those of several are put together.
const std::byte* Lines::message(const Call& call) {
  static std::byte together[kMostBytes];
  const std::size_t block = call.block_bytes();
  const auto theirs = static_cast<std::size_t>(workers_.other() * held_) * block;
  const bool many =
      call.operation == Operation::reduce_scatter || call.operation == Operation::all_to_all;
  const std::byte* first = own(call, false, many ? theirs : 0)[0];
  if (held_ == 1 || call.operation == Operation::broadcast) return first;
  Few to;
  to.add(together);
  if (call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter) {
    sum(call.type, to, own(call, false, many ? theirs : 0), message_bytes(call), Stores::plain);
    return together;
  }
  std::byte* at = together;
  for (const comparison::Buffers& buffers : call.ranks) {
    const std::size_t bytes = many ? static_cast<std::size_t>(held_) * block : block;
    std::memcpy(at, static_cast<const std::byte*>(buffers.input) + (many ? theirs : 0), bytes);
    at += bytes;
  }
  return together;
}

void Lines::take_own_blocks(const Call& call) {
  const std::size_t block = call.block_bytes();
  const auto first = static_cast<std::size_t>(workers_.index() * held_);
  const auto held = static_cast<std::size_t>(held_);
  const bool gather = call.operation == Operation::all_gather;
  for (std::size_t to = 0; to < held; ++to)
    for (std::size_t from = 0; from < held; ++from)
      std::memcpy(static_cast<std::byte*>(call.ranks[to].output) + (first + from) * block,
                  static_cast<const std::byte*>(call.ranks[from].input) +
                      (gather ? 0 : (first + to) * block),
                  block);
}

void Lines::take(const Call& call, const std::byte* theirs) {
  const std::size_t block = call.block_bytes();
  const auto mine = static_cast<std::size_t>(workers_.index() * held_);
  const auto other = static_cast<std::size_t>(workers_.other() * held_);
  const auto held = static_cast<std::size_t>(held_);
  std::byte* message = const_cast<std::byte*>(theirs);
  switch (call.operation) {
    case Operation::all_reduce: {
      Few from = own(call, false, 0);
      from.add(message);
      return sum(call.type, own(call, true, 0), from, block, Stores::plain);
    }
    case Operation::broadcast: {
      for (std::byte* to : own(call, true, 0)) std::memcpy(to, theirs, block);
      return;
    }
    case Operation::reduce_scatter: {
      for (std::size_t rank = 0; rank < held; ++rank) {
        Few from = own(call, false, (mine + rank) * block);
        from.add(message + rank * block);
        Few to;
        to.add(static_cast<std::byte*>(call.ranks[rank].output));
        sum(call.type, to, from, block, Stores::plain);
      }
      return;
    }
    case Operation::all_gather:
    case Operation::all_to_all: {
      const bool gather = call.operation == Operation::all_gather;
      for (std::size_t to = 0; to < held; ++to)
        for (std::size_t from = 0; from < held; ++from)
          std::memcpy(static_cast<std::byte*>(call.ranks[to].output) + (other + from) * block,
                      theirs + (gather ? from : from * held + to) * block, block);
      return;
    }
  }
}

void Lines::send(const Call& call, bool flag_in_each_line) {
  Mailbox& mailbox = box(workers_.index());
  Mailbox::Turn& turn = mailbox.turns[turn_ % kTurns];
  if (turn_ > seen_ + kTurns) {  // it may still be reading what was here before
    wait_for(box(workers_.other()).done.value, turn_ - kTurns);
    seen_ = box(workers_.other()).done.value.load(std::memory_order_acquire);
  }
  const std::byte* data = message(call);
  const std::size_t bytes = message_bytes(call);
  if (!flag_in_each_line) {
    std::memcpy(turn.data, data, bytes);
    turn.full.value.store(turn_, std::memory_order_release);
    return;
  }
  for (std::size_t at = 0, line = 0; at < bytes; at += kLineData, ++line) {
    std::memcpy(turn.lines[line].data, data + at, std::min(kLineData, bytes - at));
    turn.lines[line].turn.store(turn_, std::memory_order_release);
  }
}

void Lines::receive(const Call& call, bool flag_in_each_line) {
  Mailbox::Turn& turn = box(workers_.other()).turns[turn_ % kTurns];
  const std::size_t bytes = message_bytes(call);
  if (!flag_in_each_line) {
    wait_for(turn.full.value, turn_);
    take(call, turn.data);
  } else if (bytes <= kLineData) {
    wait_for(turn.lines[0].turn, turn_);
    take(call, turn.lines[0].data);
  } else {
    alignas(64) static std::byte together[kMostBytes];
    for (std::size_t at = 0, line = 0; at < bytes; at += kLineData, ++line) {
      wait_for(turn.lines[line].turn, turn_);
      std::memcpy(together + at, turn.lines[line].data, std::min(kLineData, bytes - at));
    }
    take(call, together);
  }
}

void Lines::run(const Call& call, bool flag_in_each_line) {
  ++turn_;
  if (sends(call)) send(call, flag_in_each_line);
  if (call.operation == Operation::all_gather || call.operation == Operation::all_to_all)
    take_own_blocks(call);
  if (receives(call)) receive(call, flag_in_each_line);
  // Rarely, because the line changes hands: the sender is told in time. Also who received nothing
  // is through with this turn, for a later call in which it does.
  if (turn_ % (kTurns / 4) == 0)
    box(workers_.index()).done.value.store(turn_, std::memory_order_release);
  if (call.operation == Operation::broadcast && workers_.index() == 0)
    for (std::size_t rank = 1; rank < call.ranks.size(); ++rank)
      std::memcpy(call.ranks[rank].output, call.input(), call.block_bytes());
}

}  // namespace tutti::floors

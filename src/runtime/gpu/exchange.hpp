// exchange.hpp: what a block of a GPU does for the transfers of one launch: sends and receives
// between pairs of ranks, of which no third rank knows.
//
// Nobody can order them so that waiting where one is were safe: each pair has its own order of
// things. So a block never waits for a row while another one could go on. It goes around: each
// thread looks whether a row of its own can take a step, then all move the bytes of all those
// steps, then each thread tells the peers of its own. Whatever is possible anywhere is done in the
// next round, so that only what waits for somebody who does not come stays undone.
//
// The sender alone decides how a message travels, and its header says so: its bytes stand in a
// slot, or they are offered where they lie, and the receiver takes them from there. Nothing has to
// be agreed on. Who has offered memory stays until it has been taken.
//
// Knows nothing of CUDA: kernel_block.hpp says what a Policy has.
#pragma once

#include "runtime/gpu/device_exchange.hpp"
#include "runtime/gpu/kernel_block.hpp"
#include "runtime/gpu/passes.hpp"

namespace tutti::runtime::gpu {

// Rows that a block looks at in one round; where it has more, it takes them in turns.
inline constexpr std::uint32_t kRowsAtOnce = 64;
// Of memory that is offered, so much is taken in one round, so that other rows need not wait long.
inline constexpr std::uint64_t kTakenAtOnce = 512 * 1024;

// What a row does in a round.
struct RowStep {
  std::byte* pointers[2];   // where bytes are moved from and to
  std::uint64_t bytes = 0;  // 0: none are
  MemoryRef offered;        // of a send: instead of moving bytes
  std::uint32_t acts = 0;   // 0: it waits
  std::uint32_t ends = 0;   // of a receive: the message has been read then
};

struct ExchangeShared {
  std::uint64_t deadline_ns = 0;
  RowStep steps[kRowsAtOnce];
};

template <class Policy>
class Exchange : public KernelBlock<Policy> {
 public:
  using Base = KernelBlock<Policy>;

  TUTTI_HOST_DEVICE Exchange(Policy& policy, ExchangeShared& shared, const DeviceWorld& world,
                             const DeviceExchange& exchange, std::uint32_t block)
      : Base(policy, world), shared_(shared), exchange_(exchange), block_(block) {}

  // False when a transfer has failed; the error record says why.
  TUTTI_HOST_DEVICE bool run() {
    const bool well = begin() && go_around();
    if (policy_.team().thread == 0 && world_.visits != nullptr) this->end_visit(block_);
    return well;
  }

 private:
  using Base::policy_;
  using Base::world_;

  // ---- Where things are ----

  // Of this block's rows. They are dealt out one by one.
  TUTTI_HOST_DEVICE std::uint32_t row_count() const {
    return (exchange_.row_count + exchange_.blocks - 1 - block_) / exchange_.blocks;
  }
  TUTTI_HOST_DEVICE const ExchangeRow& row(std::uint32_t index) const {
    return exchange_.rows()[block_ + std::size_t{index} * exchange_.blocks];
  }
  TUTTI_HOST_DEVICE LaneState& state(const ExchangeRow& row) const {
    const std::size_t before = row.sends != 0 ? 0 : world_.shape.lane_states();
    return world_.lanes[before + std::size_t{row.lane} * world_.shape.ranks + row.peer];
  }
  TUTTI_HOST_DEVICE const DeviceTransfer& transfer(const LaneState& state) const {
    return exchange_.transfers()[state.transfer];
  }

  // The lane's place in the inbox of the one who receives what is told.
  TUTTI_HOST_DEVICE std::byte* place_here(const ExchangeRow& row) const {
    return world_.inboxes[row.peer] + world_.shape.lane_at(row.lane);
  }
  TUTTI_HOST_DEVICE std::byte* place_there(const ExchangeRow& row) const {
    return world_.outboxes[row.peer] + world_.shape.lane_at(row.lane);
  }
  TUTTI_HOST_DEVICE static LaneBox& box(std::byte* place) {
    return *reinterpret_cast<LaneBox*>(place);
  }
  TUTTI_HOST_DEVICE LaneHeader& header(std::byte* place, std::uint64_t number) const {
    return *reinterpret_cast<LaneHeader*>(place + world_.shape.lane_header_at(number));
  }

  // ---- The beginning, and the rounds ----

  // False: calls have failed before. Then peers may be gone, and are told nothing.
  TUTTI_HOST_DEVICE bool begin() {
    const Team team = policy_.team();
    if (team.thread == 0) {
      const std::uint64_t timeout = exchange_.timeout_ns;
      shared_.deadline_ns = timeout == 0 ? 0 : policy_.now_ns() + timeout;
      if (world_.visits != nullptr) this->begin_visit(block_);
    }
    for (std::uint32_t i = team.thread; i < row_count(); i += team.size) {
      LaneState& state = this->state(row(i));
      state.done = 0;
      state.offered = 0;
      state.transfer = row(i).begin;
    }
    bool well = true;
    if (team.thread < row_count()) well = hears_nothing(row(team.thread));
    return !policy_.sync_or(!well);
  }

  TUTTI_HOST_DEVICE bool go_around() {
    const std::uint32_t rows = row_count();
    bool open = true;
    for (std::uint32_t round = 0; open; ++round) {
      open = false;
      for (std::uint32_t first = 0; first < rows; first += kRowsAtOnce) {
        const std::uint32_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
        if (!take_turn(first, count, round, open)) return false;
      }
    }
    return true;
  }

  // `open`: set where a row is not through. Syncs keep apart: what the looking threads have
  // acquired is seen by all behind the first one, and what all have moved is told behind the second
  // one.
  TUTTI_HOST_DEVICE bool take_turn(std::uint32_t first, std::uint32_t count, std::uint32_t round,
                                   bool& open) {
    const Team team = policy_.team();
    bool mine_open = false;
    bool well = true;
    for (std::uint32_t i = team.thread; i < count; i += team.size)
      well &= look(row(first + i), shared_.steps[i], round, mine_open);
    if (!policy_.sync_or(mine_open)) return true;
    open = true;
    for (std::uint32_t i = 0; i < count; ++i) move(shared_.steps[i]);
    if (policy_.sync_or(!well)) return false;
    bool acted = false;
    for (std::uint32_t i = team.thread; i < count; i += team.size) {
      if (shared_.steps[i].acts == 0) continue;
      tell(row(first + i), shared_.steps[i]);
      acted = true;
    }
    if (!acted) policy_.pause();
    return true;
  }

  TUTTI_HOST_DEVICE void move(const RowStep& step) const {
    if (step.bytes == 0) return;
    Pass pass;
    pass.pointers = step.pointers;
    pass.sources = 1;
    pass.end = 2;
    pass.bytes = step.bytes;
    copy(policy_.team(), pass);
  }

  // ---- A row: whether it can take a step, and which one ----

  // False: the launch has failed.
  TUTTI_HOST_DEVICE bool look(const ExchangeRow& row, RowStep& step, std::uint32_t round,
                              bool& open) {
    LaneState& state = this->state(row);
    step.acts = 0;
    step.bytes = 0;
    while (state.transfer < row.end && transfer(state).parts <= row.lane) ++state.transfer;
    const bool is_over = state.transfer == row.end;
    if (is_over && is_taken(row, state)) return true;
    open = true;
    if (!is_over &&
        !(row.sends != 0 ? look_to_send(row, state, step) : look_to_receive(row, state, step)))
      return false;
    return step.acts != 0 || goes_on(row, round);
  }

  // Whatever was offered.
  TUTTI_HOST_DEVICE bool is_taken(const ExchangeRow& row, const LaneState& state) {
    if (state.offered == 0) return true;
    const std::uint64_t* const word = &box(place_here(row)).received;
    return policy_.load_acquire(Site::received_see, word) >= state.offered;
  }

  TUTTI_HOST_DEVICE bool look_to_send(const ExchangeRow& row, const LaneState& state,
                                      RowStep& step) {
    const std::uint64_t* const word = &box(place_here(row)).received;
    const std::uint64_t slots = world_.shape.slots;
    if (state.messages >= slots &&
        policy_.load_acquire(Site::received_see, word) + slots <= state.messages)
      return true;
    const DeviceTransfer& transfer = this->transfer(state);
    const Range part = transfer.part(row.lane);
    const std::uint64_t left = part.count - state.done;
    step.acts = 1;
    step.offered = MemoryRef();
    if (state.done == 0 && left > 0 && transfer.shared.region != 0 &&
        this->is_open(transfer.shared)) {
      step.offered = transfer.shared;
      step.offered.offset += part.begin;
      return true;
    }
    step.bytes = left < world_.shape.slot_bytes ? left : world_.shape.slot_bytes;
    step.pointers[0] = transfer.memory + part.begin + state.done;
    step.pointers[1] = place_there(row) + world_.shape.lane_payload_at(state.messages);
    return true;
  }

  TUTTI_HOST_DEVICE bool look_to_receive(const ExchangeRow& row, const LaneState& state,
                                         RowStep& step) {
    std::byte* const place = place_here(row);
    if (policy_.load_acquire(Site::sent_see, &box(place).sent) <= state.messages) return true;
    const LaneHeader& header = this->header(place, state.messages);
    const DeviceTransfer& transfer = this->transfer(state);
    if (header.transfer_bytes != transfer.bytes) {
      give_up(Why::mismatch, row, row.peer + 1);
      return false;
    }
    const Range part = transfer.part(row.lane);
    const std::uint64_t left = part.count - state.done;
    std::byte* const offered = this->memory_of(row.peer, header.offered);
    const std::uint64_t most = offered != nullptr ? kTakenAtOnce : world_.shape.slot_bytes;
    step.acts = 1;
    step.bytes = left < most ? left : most;
    step.ends = offered == nullptr || step.bytes == left ? 1 : 0;
    step.pointers[0] = offered != nullptr ? offered + state.done
                                          : place + world_.shape.lane_payload_at(state.messages);
    step.pointers[1] = transfer.memory + part.begin + state.done;
    return true;
  }

  // ---- What has been done is told ----

  TUTTI_HOST_DEVICE void tell(const ExchangeRow& row, const RowStep& step) {
    LaneState& state = this->state(row);
    const DeviceTransfer& transfer = this->transfer(state);
    const std::uint64_t part_bytes = transfer.part(row.lane).count;
    std::byte* const place = place_there(row);
    if (row.sends != 0) {
      const bool offers = step.offered.region != 0;
      header(place, state.messages) = {transfer.bytes, step.offered};
      policy_.store_release(Site::sent_post, &box(place).sent, ++state.messages);
      if (offers) state.offered = state.messages;
      state.done = offers ? part_bytes : state.done + step.bytes;
    } else {
      state.done += step.bytes;
      if (step.ends != 0)
        policy_.store_release(Site::received_post, &box(place).received, ++state.messages);
    }
    if (state.done < part_bytes) return;
    state.done = 0;
    ++state.transfer;
  }

  // ---- Failure ----

  // Nobody has told of a failure.
  TUTTI_HOST_DEVICE bool hears_nothing(const ExchangeRow& row) {
    const std::uint64_t notice = this->notice();
    if (notice == 0) return true;
    give_up(static_cast<Why>(notice >> 32), row, static_cast<std::uint32_t>(notice));
    return false;
  }

  // Whether a row that waits may go on waiting.
  TUTTI_HOST_DEVICE bool goes_on(const ExchangeRow& row, std::uint32_t round) {
    constexpr std::uint32_t kRoundsPerLook = 16;  // at the clock
    if (!hears_nothing(row)) return false;
    if (round % kRoundsPerLook != kRoundsPerLook - 1 || shared_.deadline_ns == 0 ||
        policy_.now_ns() < shared_.deadline_ns)
      return true;
    give_up(Why::timeout, row, row.peer + 1);
    return false;
  }

  TUTTI_HOST_DEVICE void give_up(Why why, const ExchangeRow& row, std::uint32_t culprit) {
    const LaneState& state = this->state(row);
    const bool is_over = state.transfer == row.end;
    Failure failure;
    failure.why = why;
    failure.awaited = row.sends == 0 ? Awaited::data : is_over ? Awaited::taken : Awaited::room;
    failure.peer = row.peer;
    failure.culprit = culprit;
    failure.work = Work::transfers;
    failure.channel = row.lane;
    failure.step = exchange_.transfers()[is_over ? row.end - 1 : state.transfer].place;
    failure.slice = state.done;
    this->post(failure);
  }

  ExchangeShared& shared_;
  const DeviceExchange& exchange_;
  const std::uint32_t block_;
};

}  // namespace tutti::runtime::gpu

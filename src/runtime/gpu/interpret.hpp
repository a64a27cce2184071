// interpret.hpp: what a block of a GPU does in one call: it enters it, takes the instructions of
// its rank's program one after the other for every slice of its channel, and leaves.
//
// One block per channel; channels share nothing but the error record. The threads of a block share
// the waiting of a step, one operand each, then its pass over memory, then the telling. Two syncs a
// step keep these apart: what the waiting thread has acquired is seen by all behind the first one,
// and what all have stored is released by the telling thread behind the second one.
//
// Knows nothing of CUDA: kernel_block.hpp says what a Policy has.
#pragma once

#include "runtime/gpu/messages.hpp"

namespace tutti::runtime::gpu {

template <class Policy, class Format>
class Interpreter : public Messages<Policy> {
 public:
  using Base = Messages<Policy>;
  using Base::Base;

  // False when the call has failed; the error record says why.
  TUTTI_HOST_DEVICE bool run(const DeviceCall& call, std::uint32_t channel) {
    const bool well = enter(call, channel) && take_all();
    if (well) leave();
    end_visit();
    return well;
  }

 private:
  using Base::policy_;
  using Base::program_;
  using Base::shared_;
  using Base::world_;

  // ---- The beginning and the end of a call ----

  TUTTI_HOST_DEVICE bool enter(const DeviceCall& call, std::uint32_t channel) {
    const Team team = policy_.team();
    if (team.thread == 0) begin(call, channel);
    policy_.sync();
    for (std::uint32_t rank = team.thread; rank < world_.shape.ranks; rank += team.size)
      policy_.store_relaxed(&this->to(rank).entered, this->entry());
    bool failed = !check();  // each thread: after a failure none of them may tell peers anything
    if constexpr (kReduces<Format>) {
      if (shared_.call.unscaled != nullptr) {
        if (policy_.sync_or(failed)) return false;
        scale_input(team);  // before a peer is told where it lies
      }
    }
    if (shared_.call.direct && !failed) failed = !meet(team);
    return !policy_.sync_or(failed);
  }

  TUTTI_HOST_DEVICE void begin(const DeviceCall& call, std::uint32_t channel) {
    shared_.call = call;
    shared_.cut.channel = channel;
    shared_.cut.channels = call.channels;
    shared_.cut.chunks = program_.chunks;
    shared_.cut.count = call.count;
    shared_.cut.slices = slices_needed(program_, world_.shape, call.count, call.element_bytes,
                                       call.channels, call.protocol);
    shared_.sequence = world_.sequences[channel] + 1;
    shared_.deadline_ns = call.timeout_ns == 0 ? 0 : policy_.now_ns() + call.timeout_ns;
    begin_visit(channel);
    shared_.addressable = 0;
    for (std::uint32_t buffer = 0; buffer < kBufferCount; ++buffer)
      if (shared_.call.shared[buffer].region != 0) shared_.addressable |= 1U << buffer;
  }

  TUTTI_HOST_DEVICE void begin_visit(std::uint32_t channel) {
    shared_.visits = shared_.call.direct && world_.visits != nullptr;
    if (!shared_.visits) return;
    Base::begin_visit(channel);
    for (MemoryRef& memory : shared_.call.shared)
      if (!this->is_open(memory)) memory = MemoryRef();
  }

  TUTTI_HOST_DEVICE void end_visit() {
    if (policy_.team().thread == 0 && shared_.visits) Base::end_visit(this->channel());
  }

  // Whether the call can be made at all.
  TUTTI_HOST_DEVICE bool check() {
    const std::uint64_t notice = this->notice();
    if (notice != 0) {
      this->fail(static_cast<Why>(notice >> 32), Awaited::nothing, 0,
                 static_cast<std::uint32_t>(notice), {});
      return false;
    }
    std::uintptr_t phases = 0;
    for (std::uint32_t buffer = 0; buffer < kBufferCount; ++buffer)
      phases |= reinterpret_cast<std::uintptr_t>(shared_.call.memory[buffer]);
    const Why why = shared_.cut.slices == 0                    ? Why::too_large
                    : phases % shared_.call.element_bytes != 0 ? Why::misaligned
                                                               : Why::none;
    if (why != Why::none) this->fail(why, Awaited::nothing, 0, world_.rank + 1, {});
    return why == Why::none;
  }

  // The channel's part of every block. Channels touch nothing of each other's, peers' neither.
  TUTTI_HOST_DEVICE void scale_input(Team team) {
    const DeviceCall& call = shared_.call;
    const Cut& cut = shared_.cut;
    for (std::uint32_t block = 0; block < call.unscaled_blocks; ++block) {
      const Range range = Cut::part({block * cut.count, cut.count}, cut.channel, cut.channels);
      const std::uint64_t before = range.begin * call.element_bytes;
      if (team.thread == 0) {
        shared_.pointers[0] = const_cast<std::byte*>(call.unscaled) + before;
        shared_.pointers[1] = call.memory[0] + before;
      }
      policy_.sync();
      Pass pass;
      pass.pointers = shared_.pointers;
      pass.sources = 1;
      pass.end = 2;
      pass.bytes = range.count * call.element_bytes;
      scale<Format>(team, pass, static_cast<typename Format::Bits>(call.factor));
      policy_.sync();
    }
  }

  // Exchanges arrival records with all peers.
  TUTTI_HOST_DEVICE bool meet(Team team) {
    for (std::uint32_t p = team.thread; p < program_.peer_count; p += team.size) {
      const std::uint32_t rank = program_.peers()[p].rank;
      const std::uint64_t number = ++this->state(rank).met;
      ArrivalRecord& record = this->to(rank).arrivals[number % 2];
      record.signature = shared_.call.signature;
      for (std::uint32_t buffer = 0; buffer < kBufferCount; ++buffer)
        record.memory[buffer] = shared_.call.shared[buffer];
      policy_.store_release(Site::arrival_post, &record.number, number);
    }
    for (std::uint32_t p = team.thread; p < program_.peer_count; p += team.size)
      if (!take_arrival(program_.peers()[p].rank)) return false;
    return true;
  }

  TUTTI_HOST_DEVICE bool take_arrival(std::uint32_t rank) {
    PeerState& state = this->state(rank);
    const ArrivalRecord& record = this->from(rank).arrivals[state.met % 2];
    if (!this->wait({&record.number, state.met, Site::arrival_see, Awaited::arrival, rank}, {}))
      return false;
    if (record.signature != shared_.call.signature) {
      this->fail(Why::mismatch, Awaited::arrival, rank, rank + 1, {});
      return false;
    }
    state.addressable = 0;
    for (std::uint32_t buffer = 0; buffer < kBufferCount; ++buffer) {
      std::byte* const memory = this->memory_of(rank, record.memory[buffer]);
      if (memory == nullptr) continue;
      state.memory[buffer] = memory;
      state.addressable |= 1U << buffer;
    }
    return true;
  }

  // What has been sent and received stays counted for the next call.
  TUTTI_HOST_DEVICE void leave() {
    const Team team = policy_.team();
    const std::uint64_t slices = shared_.cut.slices;
    for (std::uint32_t p = team.thread; p < program_.peer_count; p += team.size) {
      const ProgramPeer& peer = program_.peers()[p];
      PeerState& state = this->state(peer.rank);
      state.sent += slices * peer.sends;
      state.received += slices * peer.receives;
    }
    if (team.thread == 0) world_.sequences[this->channel()] = shared_.sequence;
  }

  // ---- Instructions ----

  TUTTI_HOST_DEVICE bool take_all() {
    const Instruction* const instructions = program_.instructions();
    const std::uint64_t slices = shared_.cut.slices;
    for (std::uint64_t slice = 0; slice < slices; ++slice)
      for (std::uint32_t i = 0; i < program_.instruction_count; ++i)
        if (!take(instructions[i], slice)) return false;
    return true;
  }

  TUTTI_HOST_DEVICE bool take(const Instruction& instruction, std::uint64_t slice) {
    const Moment moment{instruction.step, slice};
    const InstructionKind kind = instruction.kind;
    if (kind == InstructionKind::grant && !shared_.call.direct) return true;
    if (kind == InstructionKind::await && slice + 1 < shared_.cut.slices) return true;
    const bool is_step = kind == InstructionKind::copy || kind == InstructionKind::reduce;
    if (policy_.sync_or(!await_all(instruction, moment) ||
                        (is_step && !find_places(instruction, moment))))
      return false;
    if (kind == InstructionKind::grant && policy_.team().thread == 0)
      this->grant(program_.operands()[instruction.operands], moment);
    if (!is_step) return true;
    if (policy_.sync_or(!do_pieces(instruction, moment))) return false;
    tell_all(instruction);
    return true;
  }

  TUTTI_HOST_DEVICE bool await_all(const Instruction& instruction, Moment moment) {
    const Team team = policy_.team();
    for (std::uint32_t a = instruction.awaits + team.thread; a < instruction.awaits_end;
         a += team.size)
      if (!this->await_taken(program_.awaits()[a], moment)) return false;
    return true;
  }

  // Points 1 and 3, and where the first chunk lies.
  TUTTI_HOST_DEVICE bool find_places(const Instruction& instruction, Moment moment) {
    const Team team = policy_.team();
    const std::uint32_t end = std::uint32_t{instruction.sources} + instruction.destinations;
    for (std::uint32_t i = team.thread; i < end; i += team.size) {
      const DeviceOperand& operand = program_.operands()[instruction.operands + i];
      Place place;
      if (!this->find(operand, i >= instruction.sources, place, moment)) return false;
      shared_.places[i] = place;
      if (this->is_flagged()) {
        shared_.flags[i] = flag_of(place.number - 1);
        shared_.is_slot[i] = place.in_slot;
      }
      find_piece(instruction, i, 0, 0, moment.slice);
    }
    return true;
  }

  // Where chunk `piece` of operand `i` lies; `before` are the message's bytes before it.
  TUTTI_HOST_DEVICE void find_piece(const Instruction& instruction, std::uint32_t i,
                                    std::uint32_t piece, std::uint64_t before,
                                    std::uint64_t slice) {
    const Place& place = shared_.places[i];
    if (i > 0 && (place.base == nullptr || place.in_slot)) {
      const bool whole = place.base == nullptr || this->is_flagged();
      shared_.pointers[i] = whole ? place.base : place.base + before;
      return;
    }
    const Range range =
        shared_.cut.of((place.in_slot ? instruction.chunk : place.chunk) + piece, slice);
    const std::uint64_t bytes = shared_.call.element_bytes;
    if (!place.in_slot)
      shared_.pointers[i] = place.base + range.begin * bytes;
    else
      shared_.pointers[i] = this->is_flagged() ? place.base : place.base + before;
    if (i == 0) shared_.piece_bytes = range.count * bytes;
  }

  // Point 4. Every thread takes its part of every piece; false for one that waits in vain.
  TUTTI_HOST_DEVICE bool do_pieces(const Instruction& instruction, Moment moment) {
    const Team team = policy_.team();
    const std::uint32_t end = std::uint32_t{instruction.sources} + instruction.destinations;
    const std::uint64_t unit = this->is_flagged() ? kUnitBytes : kVectorBytes;
    bool done = true;
    std::uint64_t before = 0;
    for (std::uint32_t piece = 0;;) {
      const std::uint64_t bytes = shared_.piece_bytes;
      if (bytes > 0 && done) done = do_piece(instruction, before, bytes, moment);
      before += ceil_div(bytes, unit) * unit;
      if (++piece == instruction.pieces) break;
      policy_.sync();
      for (std::uint32_t i = team.thread; i < end; i += team.size)
        find_piece(instruction, i, piece, before, moment.slice);
      policy_.sync();
    }
    if (this->is_flagged()) fill_slots(instruction, before / kUnitBytes + 1);
    if (team.thread == 0) shared_.payload_bytes = before;
    return done;
  }

  TUTTI_HOST_DEVICE bool do_piece(const Instruction& instruction, std::uint64_t before,
                                  std::uint64_t bytes, Moment moment) {
    Pass pass;
    pass.pointers = shared_.pointers;
    pass.sources = instruction.sources;
    pass.end = std::uint32_t{instruction.sources} + instruction.destinations;
    pass.bytes = bytes;
    const bool divides = instruction.finish && shared_.call.op == ReduceOp::avg;
    if (divides) pass.divisor = program_.ranks;
    if (this->is_flagged()) return do_flagged(instruction, pass, before, moment);
    if constexpr (kReduces<Format>) {
      if (instruction.kind == InstructionKind::reduce) {
        fold(pass, divides);
        return true;
      }
    }
    copy(policy_.team(), pass);
    return true;
  }

  TUTTI_HOST_DEVICE void fold(const Pass& pass, bool divides) {
    const Team team = policy_.team();
    if (divides) return reduce<Format, AverageOp>(team, pass);
    switch (shared_.call.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return reduce<Format, SumOp>(team, pass);
      case ReduceOp::prod:
        return reduce<Format, ProdOp>(team, pass);
      case ReduceOp::min:
        return reduce<Format, MinOp>(team, pass);
      case ReduceOp::max:
        return reduce<Format, MaxOp>(team, pass);
    }
  }

  TUTTI_HOST_DEVICE bool do_flagged(const Instruction& instruction, const Pass& pass,
                                    std::uint64_t before, Moment moment) {
    const FlaggedPass flagged{pass, shared_.flags, shared_.is_slot, before / kUnitBytes + 1,
                              shared_.call.op};
    const auto leaves = [&](std::uint32_t source, std::uint32_t polls) {
      const DeviceOperand& operand = program_.operands()[instruction.operands + source];
      const std::uint32_t rank = program_.peers()[operand.peer].rank;
      return this->gives_up(polls, Awaited::data, rank, moment);
    };
    return flagged_pass<Format>(policy_, policy_.team(), flagged, leaves);
  }

  // Leaves no word of old in a slot (flagged.hpp), behind the units that the message has.
  TUTTI_HOST_DEVICE void fill_slots(const Instruction& instruction, std::uint64_t units) {
    const Team team = policy_.team();
    for (std::uint32_t d = 0; d < instruction.destinations; ++d) {
      const Place& place = shared_.places[instruction.sources + d];
      if (!place.in_slot || !fills_slot(place.number - 1, world_.shape.slots)) continue;
      const std::uint64_t end = world_.shape.flagged_bytes / kUnitBytes + 1;
      for (std::uint64_t unit = units + team.thread; unit < end; unit += team.size)
        store_unit(policy_, place.base, unit, 0, flag_of(place.number - 1));
    }
  }

  // Point 5.
  TUTTI_HOST_DEVICE void tell_all(const Instruction& instruction) {
    const Team team = policy_.team();
    const std::uint32_t end = std::uint32_t{instruction.sources} + instruction.destinations;
    for (std::uint32_t i = team.thread; i < end; i += team.size)
      this->tell(program_.operands()[instruction.operands + i], shared_.places[i],
                 i >= instruction.sources);
  }
};

}  // namespace tutti::runtime::gpu

// The proof of a schedule, and why one run of it is enough.
//
// 1. Form. Every step makes sense alone, and both ends of every message agree (verifier_form).
//
// 2. Waits. What a step waits for (a dependency, a message, room in a queue, a grant, being taken)
//    is always one certain event of one certain step: streams have one sender, one receiver and a
//    fixed order, so nobody competes for anything, and an event that may happen may still happen
//    later, whatever else happens in between. Such a system is confluent: all maximal runs carry
//    out the same events. So it is enough to run it once: if that run gets stuck, every run does;
//    if it does not, none can (verifier_order). The run has the least room that a transport may
//    give and all waits that an executor may add; more room or fewer waits only take waits away,
//    and a run that had no circle of waits has none then.
//
// 3. Races. Happens-before is what remains of the waits when those are left out that a roomier
//    executor does not have. Every two accesses to the same chunk of memory, one of them writing,
//    must be ordered by it, in whatever rank they happen. An access to another rank's memory must
//    also lie between that rank's entering the call and its leaving it.
//
// 4. Values. Without races every read sees the same write in all runs, so the values of the one run
//    are those of all runs. They are bags of atoms, not numbers: an output must hold exactly the
//    atoms of its contract, and a reduction must have passed one `finish` (verifier_values).
//
// For the lowered forms, each choice of which buffers can be addressed makes another system; each
// is proved by itself. Tests cross-check all this against every interleaving of small worlds
// (verifier_explore) and by damaging schedules (mutate).
#include "collectives/verifier.hpp"

#include <fmt/format.h>

#include "collectives/contract.hpp"
#include "collectives/splitmix.hpp"
#include "collectives/verifier_flow.hpp"
#include "collectives/verifier_form.hpp"
#include "collectives/verifier_order.hpp"
#include "collectives/verifier_values.hpp"

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Verdict fail(Fault fault, std::string reason) { return Verdict{fault, std::move(reason), 0, 0}; }

// Carries out the steps of a Flow in a given order on abstract memory, and watches who touches
// what.
class Machine {
 public:
  Machine(const Flow& flow, const HappensBefore& order)
      : flow_(flow),
        order_(order),
        memory_(at(flow.memory.cell_count())),
        last_write_(at(flow.memory.cell_count()), -1),
        readers_(at(flow.memory.cell_count())) {
    for (const FlowMessage& message : flow.messages) {
      first_value_.push_back(in_flight_.size());
      in_flight_.resize(in_flight_.size() + at(flow.steps[at(message.sender)].count));
    }
    fill_inputs();
  }

  // Faults: race, contract.
  Verdict execute(int step) {
    const FlowStep& what = flow_.steps[at(step)];
    if (const int cell = self_conflict(flow_, what); cell >= 0)
      return fail(Fault::race,
                  fmt::format("{} shifts {} over itself", name(step), flow_.memory.describe(cell)));
    for (const FlowAccess& access : accesses_of(what))
      if (std::string wrong = note(step, access); !wrong.empty()) return fail(Fault::race, wrong);
    for (int k = 0; k < what.count && moves_content(what); ++k)
      if (std::string wrong = move(what, k); !wrong.empty())
        return fail(Fault::contract, name(step) + " " + wrong);
    return {};
  }

  Verdict check_outputs() {
    const ScheduleShape& shape = flow_.shape;
    for (Rank rank = 0; rank < shape.ranks; ++rank)
      for (int chunk = 0; chunk < contract_chunks(shape, Buffer::output); ++chunk) {
        const Value value = memory_[at(flow_.memory.cell(rank, Buffer::output, chunk))];
        if (std::string wrong = judge(table_, required_output(shape, rank, chunk), value);
            !wrong.empty())
          return fail(Fault::contract, fmt::format("output[{}] of rank {} {}", chunk, rank, wrong));
      }
    return {};
  }

 private:
  void fill_inputs() {
    const ScheduleShape& shape = flow_.shape;
    for (Rank rank = 0; rank < shape.ranks; ++rank) {
      if (!has_content(shape, rank)) continue;
      for (int chunk = 0; chunk < contract_chunks(shape, Buffer::input); ++chunk)
        memory_[at(flow_.memory.cell(rank, Buffer::input, chunk))] = table_.of({rank, chunk});
    }
  }

  std::string name(int step) const {
    const FlowStep& what = flow_.steps[at(step)];
    return describe_step(what.rank, what.number, what.kind);
  }

  // Steps come in an order that extends happens-before, so an access conflicts with nothing if it
  // is ordered after the last write and, when it writes, after the reads since then: those before
  // are ordered before that write.
  std::string note(int step, const FlowAccess& access) {
    const FlowStep& what = flow_.steps[at(step)];
    for (int k = 0; k < what.count; ++k) {
      const int cell = flow_.cells_of(*access.operand)[k];
      const Rank owner = flow_.memory.owner(cell);
      if (owner != what.rank) {
        if (!order_.entered(owner, step) || !order_.over_before_end(step, owner))
          return fmt::format("{} touches {} before that rank has entered or after it may have left",
                             name(step), flow_.memory.describe(cell));
      }
      const int writer = last_write_[at(cell)];
      if (writer >= 0 && writer != step && !order_.ordered(writer, step))
        return conflict(step, access.write, writer, true, cell);
      std::vector<int>& readers = readers_[at(cell)];
      if (!access.write) {
        readers.push_back(step);
        continue;
      }
      for (int reader : readers)
        if (reader != step && !order_.ordered(reader, step))
          return conflict(step, true, reader, false, cell);
      readers.clear();
      last_write_[at(cell)] = step;
    }
    return {};
  }

  std::string conflict(int step, bool writes, int other, bool other_writes, int cell) const {
    return fmt::format("{} {} {} while {} may {} it", name(step), writes ? "writes" : "reads",
                       flow_.memory.describe(cell), name(other), other_writes ? "write" : "read");
  }

  // Element k of the step's pass.
  std::string move(const FlowStep& step, int k) {
    sources_.clear();
    for (const FlowOperand& source : step.sources)
      sources_.push_back(source.route == Route::staged ? in_flight(source, k)
                                                       : memory_[at(flow_.cells_of(source)[k])]);
    std::string reason;
    const auto value = combine(table_, flow_.shape.ranks, step.kind, step.finish, sources_, reason);
    if (!value) return reason;
    for (const FlowOperand& destination : step.destinations) {
      if (destination.route == Route::pull) continue;
      (destination.route == Route::staged ? in_flight(destination, k)
                                          : memory_[at(flow_.cells_of(destination)[k])]) = *value;
    }
    return {};
  }

  Value& in_flight(const FlowOperand& operand, int k) {
    return in_flight_[first_value_[at(operand.message)] + at(k)];
  }

  const Flow& flow_;
  const HappensBefore& order_;
  ValueTable table_;
  std::vector<Value> memory_;
  std::vector<int> last_write_;
  std::vector<std::vector<int>> readers_;  // since the last write
  std::vector<Value> in_flight_;           // of staged messages
  std::vector<std::size_t> first_value_;
  std::vector<Value> sources_;
};

Verdict check_barrier(const Flow& flow, const HappensBefore& order) {
  for (Rank rank = 0; rank < flow.shape.ranks; ++rank)
    for (Rank first = 0; first < flow.shape.ranks; ++first)
      if (!order.entered_before_end(first, rank))
        return fail(Fault::contract, fmt::format("rank {} may leave the barrier before rank {} has "
                                                 "entered it",
                                                 rank, first));
  return {};
}

Verdict prove(const Flow& flow, int queue_messages) {
  const EventGraph graph(flow, queue_messages);
  const std::vector<int> done = graph.run();
  if (done.size() != at(graph.event_count()))
    return fail(Fault::deadlock, graph.explain_deadlock(done));
  const HappensBefore order(flow, graph, done);
  Machine machine(flow, order);
  for (int event : done) {
    if (!graph.is_execution(event)) continue;
    if (Verdict verdict = machine.execute(event); !verdict.ok()) return verdict;
  }
  if (Verdict verdict = machine.check_outputs(); !verdict.ok()) return verdict;
  if (flow.shape.collective == Collective::barrier)
    if (Verdict verdict = check_barrier(flow, order); !verdict.ok()) return verdict;
  Verdict verdict;
  verdict.steps = static_cast<std::int64_t>(flow.steps.size());
  verdict.messages = static_cast<std::int64_t>(flow.messages.size());
  return verdict;
}

}  // namespace

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::none:
      return "none";
    case Fault::malformed:
      return "malformed";
    case Fault::unmatched:
      return "unmatched";
    case Fault::deadlock:
      return "deadlock";
    case Fault::race:
      return "race";
    case Fault::contract:
      return "contract";
  }
  return "unknown";
}

Verdict verify(const ScheduleShape& shape, std::span<const ExpandedProgram> programs,
               const VerifyOptions& options) {
  std::vector<LoweredProgram> staged;
  for (std::size_t r = 0; r < programs.size(); ++r)
    staged.push_back(as_lowered(shape, static_cast<Rank>(r), programs[r]));
  return verify_lowered(staged, all_staged(static_cast<int>(staged.size())), options);
}

Verdict verify_lowered(std::span<const LoweredProgram> programs, const Addressability& addressable,
                       const VerifyOptions& options) {
  std::size_t steps = 0;
  for (const LoweredProgram& program : programs) steps += program.steps.size();
  if (steps > at(kVerifiedStepsMax))
    return fail(Fault::malformed, fmt::format("{} steps in all; worlds of up to {} are proved",
                                              steps, kVerifiedStepsMax));
  if (Verdict verdict = check_form(programs); !verdict.ok()) return verdict;
  Verdict total;
  for (const bool in_place : {false, true}) {
    if (!(in_place ? options.in_place : options.out_of_place)) continue;
    if (in_place && !may_run_in_place(programs[0].shape.collective)) continue;
    Verdict verdict = prove(join(programs, addressable, in_place), options.queue_messages);
    if (!verdict.ok()) {
      if (in_place) verdict.reason += " (in place)";
      return verdict;
    }
    total.steps += verdict.steps;
    total.messages += verdict.messages;
  }
  return total;
}

Addressability::Addressability(int ranks, Addressable everywhere)
    : ranks_(ranks), pairs_(at(ranks) * at(ranks), everywhere) {}

Addressability all_direct(int ranks) { return Addressability(ranks, {true, true, true}); }

Addressability all_staged(int ranks) { return Addressability(ranks); }

Addressability direct_within(int ranks, int group) {
  Addressability addressable(ranks);
  for (Rank owner = 0; owner < ranks; ++owner)
    for (Rank peer = 0; peer < ranks; ++peer)
      if (owner / group == peer / group) addressable.of(owner, peer) = {true, true, true};
  return addressable;
}

Addressability some_direct(int ranks, std::uint64_t seed) {
  SplitMix dice(seed);
  const bool by_pair = seed % 2 == 1;
  Addressability addressable(ranks);
  for (Rank owner = 0; owner < ranks; ++owner) {
    int bits = dice.below(8);
    for (Rank peer = 0; peer < ranks; ++peer) {
      if (by_pair) bits = dice.below(8);
      addressable.of(owner, peer) = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    }
  }
  return addressable;
}

}  // namespace tutti::collectives

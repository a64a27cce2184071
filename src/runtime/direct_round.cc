// direct_round.cc: see direct_round.hpp.
#include "runtime/direct_round.hpp"

#include <algorithm>

#include "collectives/footprint.hpp"

namespace tutti::runtime {

void DirectRound::lay_out(const CallProgram& program, const ShortProgram& steps) {
  clear();
  for (std::uint32_t number = 0; number < steps.steps().size(); ++number)
    if (!add(program, steps, number)) return clear();
  sort(steps);
}

void DirectRound::sort(const ShortProgram& steps) {
  std::uint64_t awaited = 0;  // steps by bit
  for (const ShortStep& step : steps.steps()) awaited |= step.depends;
  for (Action& action : actions_) action.spare &= (awaited >> action.step & 1) == 0;
  const auto spare = std::stable_partition(actions_.begin(), actions_.end(),
                                           [](const Action& action) { return !action.spare; });
  const auto met = std::stable_partition(actions_.begin(), spare,
                                         [](const Action& action) { return action.early; });
  early_ = static_cast<std::size_t>(met - actions_.begin());
  spare_ = static_cast<std::size_t>(spare - actions_.begin());
}

// A step is done in its turn, which must not be before something that is complete at the end only.
bool DirectRound::add(const CallProgram& program, const ShortProgram& steps, std::uint32_t number) {
  const ShortStep& step = steps.steps()[number];
  const std::uint64_t bit = std::uint64_t{1} << number;
  const CallOperand& first = program.operand(step.sources);
  if (first.is_message && first.way == Way::push) {
    open_steps_ |= bit;
    const bool waived = (step.depends & open_steps_ & ~step.fused) == 0;
    return waived && add_landing(program, step);
  }
  const std::uint64_t awaited = step.depends & open_steps_;
  const bool readers_only = (awaited & ~early_steps_) == 0;
  if (awaited != 0 && !(readers_only && harms_nobody(program, steps, step))) return false;
  Action action{.step = number, .words = static_cast<std::uint32_t>(words_.size())};
  bool alone = (step.depends & ~early_steps_) == 0;  // it needs no peer
  bool own_only = true;
  for (std::uint32_t i = step.sources; i < step.destinations; ++i) {
    const CallOperand& source = program.operand(i);
    if (!source.is_message) continue;
    if (source.way != Way::pull || !source.ready) return false;
    words_.push_back({source.stream, Signal::taken, true, source.ordinal});
    action.pulls = true;
    alone = false;
  }
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const CallOperand& destination = program.operand(i);
    own_only &= !destination.is_message;
    if (!destination.is_message) continue;
    if (!destination.ready || destination.way == Way::staged) return false;
    if (destination.way == Way::push) {
      words_.push_back({destination.stream, Signal::produced, false, destination.ordinal});
      action.vouches = pulls_ || action.pulls;
      alone = false;
    } else {
      ends_.push_back({destination.stream, Signal::taken, false, destination.ordinal});
      open_steps_ |= bit;
    }
  }
  action.words_end = static_cast<std::uint32_t>(words_.size());
  action.early = alone;
  action.spare = alone && own_only && step.kind == StepKind::copy;
  if (!alone && copies_for_both(program, step)) {
    actions_.push_back({.step = number, .part = Part::own, .early = true, .spare = true});
    action.part = Part::peers;
  }
  actions_.push_back(action);
  pulls_ |= action.pulls;
  if (alone) early_steps_ |= bit;
  return true;
}

// A copy that waits for peers to have read its source, in case the output is in the same place:
// then it is nothing.
bool DirectRound::harms_nobody(const CallProgram& program, const ShortProgram& steps,
                               const ShortStep& step) {
  const CallOperand& from = program.operand(step.sources);
  const CallOperand& to = program.operand(step.destinations);
  const bool own = step.kind == StepKind::copy && step.end == step.destinations + 1 &&
                   !from.is_message && !to.is_message;
  return own && program.lowered().shape.collective == Collective::broadcast &&
         from.buffer == Buffer::input && to.buffer == Buffer::output &&
         steps.offset(step.sources) == steps.offset(step.destinations);
}

// From own memory, that no step before it writes, to own memory and into peers'.
bool DirectRound::copies_for_both(const CallProgram& program, const ShortStep& step) const {
  const bool at_once = step.kind == StepKind::copy && (step.depends & ~early_steps_) == 0 &&
                       !program.operand(step.sources).is_message;
  bool own = false;
  bool peers = false;
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    own |= !program.operand(i).is_message;
    peers |= program.operand(i).is_message;
  }
  return at_once && own && peers;
}

// What a peer stores where it belongs: nothing is left to do but to hear of it.
bool DirectRound::add_landing(const CallProgram& program, const ShortStep& step) {
  const CallOperand& source = program.operand(step.sources);
  const CallOperand& destination = program.operand(step.destinations);
  const bool lands = step.kind == StepKind::copy && step.end == step.destinations + 1 &&
                     !destination.is_message && destination.buffer == source.buffer &&
                     destination.chunk == source.chunk;
  if (!lands || !source.ready) return false;
  ends_.push_back({source.stream, Signal::produced, true, source.ordinal});
  return true;
}

void DirectRound::clear() {
  actions_.clear();
  words_.clear();
  ends_.clear();
  early_ = spare_ = 0;
  pulls_ = false;
  early_steps_ = open_steps_ = 0;
}

std::size_t DirectRound::memory_bytes() const {
  using collectives::bytes_of;
  return bytes_of(actions_) + bytes_of(words_) + bytes_of(ends_);
}

}  // namespace tutti::runtime

// one_round.cc: see one_round.hpp.
#include "runtime/one_round.hpp"

#include <algorithm>

#include "collectives/footprint.hpp"

namespace tutti::runtime {

void OneRound::lay_out(const CallProgram& program, const ShortProgram& steps,
                       std::size_t element_bytes) {
  clear();
  const auto& peers = program.peers();
  const bool one_each = std::all_of(peers.begin(), peers.end(), [](const CallPeer& peer) {
    return peer.sends.size() <= 1 && peer.receives.size() <= 1;
  });
  const bool fits = one_each && std::all_of(steps.steps().begin(), steps.steps().end(),
                                            [&](const ShortStep& step) {
                                              return add(program, steps, step, element_bytes);
                                            });
  if (!fits) clear();
  const auto late = std::stable_partition(actions_.begin(), actions_.end(),
                                          [](const Action& action) { return action.early; });
  early_ = static_cast<std::size_t>(late - actions_.begin());
  alike_ = sends_are_alike();
}

// A frame in two places is found by two looks one after the other, at a line each; and a tiny frame
// is one line for each peer in any case.
bool OneRound::sends_are_alike() const {
  constexpr std::size_t kWorthwhileBytes = 512;
  return sends_.size() > 1 && sends_.front().bytes >= kWorthwhileBytes &&
         std::all_of(sends_.begin(), sends_.end(), [&](const Send& send) {
           const Send& first = sends_.front();
           return send.buffer == first.buffer && send.offset == first.offset &&
                  send.bytes == first.bytes;
         });
}

OneRound::Place OneRound::place_of(const CallProgram& program, const ShortProgram& steps,
                                   std::uint32_t i) {
  const CallOperand& operand = program.operand(i);
  return {operand.is_message ? operand.stream : kOwn, operand.buffer, steps.offset(i)};
}

void OneRound::add_sources(const CallProgram& program, const ShortProgram& steps,
                           const ShortStep& step, std::size_t element_bytes, Receives& receives,
                           Action& action) {
  action.kind = step.kind;
  action.finish = step.finish;
  action.elements = step.elements;
  action.sources = static_cast<std::uint32_t>(places_.size());
  for (std::uint32_t i = step.sources; i < step.destinations; ++i) {
    places_.push_back(place_of(program, steps, i));
    if (program.operand(i).is_message)
      receives.push_back({program.operand(i).stream, step.elements * element_bytes});
  }
  action.destinations = action.end = static_cast<std::uint32_t>(places_.size());
}

// What a step sends goes ahead of everything, so that it may depend on nothing. What it copies
// besides has its turn among the others.
bool OneRound::add(const CallProgram& program, const ShortProgram& steps, const ShortStep& step,
                   std::size_t element_bytes) {
  if (step.elements == 0) return false;  // nothing to gain
  if (step.keeps_sum) return add_relay(program, steps, step, element_bytes);
  Action action;
  add_sources(program, steps, step, element_bytes, receives_, action);
  const Place from = places_[action.sources];
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const Place to = place_of(program, steps, i);
    const bool onto_itself = step.kind == StepKind::copy && to.peer == kOwn && from.peer == kOwn &&
                             to.buffer == from.buffer && to.offset == from.offset;
    const bool late = !step.sends_at_once || step.depends != 0 || relays();
    if (to.peer != kOwn && late) return false;
    if (to.peer != kOwn)
      sends_.push_back({to.peer, from.buffer, from.offset, step.elements * element_bytes});
    else if (!onto_itself)
      places_.push_back(to);
  }
  action.end = static_cast<std::uint32_t>(places_.size());
  action.early = step.kind == StepKind::copy && from.peer == kOwn && step.depends == 0 && !relays();
  if (action.end > action.destinations) actions_.push_back(action);
  return true;
}

// A sum that is kept and sent is the first step, which goes ahead of everything with what it needs.
bool OneRound::add_relay(const CallProgram& program, const ShortProgram& steps,
                         const ShortStep& step, std::size_t element_bytes) {
  if (!actions_.empty() || !sends_.empty() || relays() || step.depends != 0) return false;
  add_sources(program, steps, step, element_bytes, gathered_, relay_);
  if (gathered_.empty()) return false;
  for (std::uint32_t i = step.destinations; i < step.end; ++i)
    if (const Place to = place_of(program, steps, i); to.peer == kOwn) places_.push_back(to);
  relay_.end = static_cast<std::uint32_t>(places_.size());
  const Place kept = places_[relay_.destinations];
  for (std::uint32_t i = step.destinations; i < step.end; ++i)
    if (const Place to = place_of(program, steps, i); to.peer != kOwn)
      sends_.push_back({to.peer, kept.buffer, kept.offset, step.elements * element_bytes});
  relay_bit_ = std::uint64_t{1} << (&step - steps.steps().data());
  return true;
}

void OneRound::clear() {
  gathered_.clear();
  sends_.clear();
  receives_.clear();
  actions_.clear();
  early_ = 0;
  places_.clear();
  alike_ = false;
}

std::size_t OneRound::memory_bytes() const {
  using collectives::bytes_of;
  return bytes_of(gathered_) + bytes_of(sends_) + bytes_of(receives_) + bytes_of(actions_) +
         bytes_of(places_);
}

}  // namespace tutti::runtime

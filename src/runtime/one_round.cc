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

// What a step sends goes ahead of everything, so that it may depend on nothing. What it copies
// besides has its turn among the others.
bool OneRound::add(const CallProgram& program, const ShortProgram& steps, const ShortStep& step,
                   std::size_t element_bytes) {
  const std::size_t bytes = step.elements * element_bytes;
  if (step.elements == 0) return false;  // nothing to gain
  const auto place = [&](std::uint32_t i) {
    const CallOperand& operand = program.operand(i);
    return Place{operand.is_message ? operand.stream : kOwn, operand.buffer, steps.offset(i)};
  };
  Action action{step.kind, step.finish, step.elements};
  action.sources = static_cast<std::uint32_t>(places_.size());
  for (std::uint32_t i = step.sources; i < step.destinations; ++i) {
    places_.push_back(place(i));
    if (program.operand(i).is_message) receives_.push_back({program.operand(i).stream, bytes});
  }
  action.destinations = static_cast<std::uint32_t>(places_.size());
  const Place from = places_[action.sources];
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const Place to = place(i);
    const bool onto_itself = step.kind == StepKind::copy && to.peer == kOwn && from.peer == kOwn &&
                             to.buffer == from.buffer && to.offset == from.offset;
    if (to.peer != kOwn && (!step.sends_at_once || step.depends != 0)) return false;
    if (to.peer != kOwn)
      sends_.push_back({to.peer, from.buffer, from.offset, bytes});
    else if (!onto_itself)
      places_.push_back(to);
  }
  action.end = static_cast<std::uint32_t>(places_.size());
  if (action.end > action.destinations) actions_.push_back(action);
  return true;
}

void OneRound::clear() {
  sends_.clear();
  receives_.clear();
  actions_.clear();
  places_.clear();
  alike_ = false;
}

std::size_t OneRound::memory_bytes() const {
  using collectives::bytes_of;
  return bytes_of(sends_) + bytes_of(receives_) + bytes_of(actions_) + bytes_of(places_);
}

}  // namespace tutti::runtime

// The faults, as small functions over either form of a step, and the table that they stand in.
#include "collectives/mutate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verifier_form.hpp"

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }
int size_of(const auto& container) { return static_cast<int>(container.size()); }

// ---- What the two forms call differently ----

ScheduleShape& shape_of(TwoSidedWorld& world) { return world.shape; }
ScheduleShape& shape_of(LoweredWorld& world) { return world[0].shape; }
int rank_count(const TwoSidedWorld& world) { return size_of(world.programs); }
int rank_count(const LoweredWorld& world) { return size_of(world); }
std::vector<ExpandedStep>& steps_of(TwoSidedWorld& world, Rank rank) {
  return world.programs[at(rank)];
}
std::vector<LoweredStep>& steps_of(LoweredWorld& world, Rank rank) { return world[at(rank)].steps; }
int& first_chunk(ExpandedOperand& operand) { return operand.index; }
int& first_chunk(LoweredOperand& operand) { return operand.chunk; }
int& step_of(int& dependency) { return dependency; }
int& step_of(LoweredDependency& dependency) { return dependency.step; }

// A place in a world where a fault is made: a rank and one of its steps.
template <typename World>
struct Site {
  World& world;
  SplitMix& dice;
  Rank rank = 0;
  int step = 0;

  auto& steps() { return steps_of(world, rank); }
  auto& here() { return steps()[at(step)]; }
  auto& operands(bool destinations) { return destinations ? here().destinations : here().sources; }
  // One of the step's operands of a kind; null when it has none.
  auto* pick(Operand::Kind kind) {
    std::vector<decltype(&here().sources[0])> found;
    for (auto* list : {&here().sources, &here().destinations})
      for (auto& operand : *list)
        if (operand.kind == kind) found.push_back(&operand);
    return found.empty() ? nullptr : found[at(dice.below(size_of(found)))];
  }
};

// Some faults are often harmless in a way that only trying all orders can show: another buffer may
// hold the same value, one of two queued messages may as well be pulled. They are made where that
// can be done.
constexpr int kSmallWorldMax = 4;

// A fault returns what it did, or nothing when it cannot be made there.
using Done = std::optional<std::string>;

// ---- Faults of both forms ----

// Those that depended on the step depend on what it depended on.
template <typename World>
Done drop_step(Site<World>& site) {
  auto& steps = site.steps();
  const auto inherited = site.here().depends;
  steps.erase(steps.begin() + site.step);
  for (std::size_t s = at(site.step); s < steps.size(); ++s) {
    auto& depends = steps[s].depends;
    const auto gone = std::find_if(depends.begin(), depends.end(),
                                   [&](auto& d) { return step_of(d) == site.step; });
    if (gone != depends.end()) {
      depends.erase(gone);
      depends.insert(depends.end(), inherited.begin(), inherited.end());
    }
    for (auto& dependency : depends)
      if (step_of(dependency) > site.step) --step_of(dependency);
  }
  return "";
}

template <typename World>
Done drop_dependency(Site<World>& site) {
  auto& depends = site.here().depends;
  if (depends.empty()) return std::nullopt;
  const auto gone = depends.begin() + site.dice.below(size_of(depends));
  const std::string what = fmt::format("on step {}", step_of(*gone));
  depends.erase(gone);
  return what;
}

// Swaps the operands of this step's message with those of the next one on the same stream.
template <typename World>
Done reorder_messages(Site<World>& site) {
  auto& steps = site.steps();
  for (int later = site.step + 1; later < size_of(steps); ++later) {
    auto& a = site.here();
    auto& b = steps[at(later)];
    if (a.kind != StepKind::copy || b.kind != StepKind::copy || a.sources == b.sources) continue;
    if (a.destinations.size() != 1 || b.destinations.size() != 1) continue;
    std::swap(a.sources, b.sources);
    return fmt::format("with step {}", later);
  }
  return std::nullopt;
}

template <typename World>
Done swap_kind(Site<World>& site) {
  auto& step = site.here();
  step.kind = step.kind == StepKind::copy ? StepKind::reduce : StepKind::copy;
  return step.kind == StepKind::copy ? "to copy" : "to reduce";
}

template <typename World>
Done toggle_finish(Site<World>& site) {
  site.here().finish = !site.here().finish;
  return site.here().finish ? "set" : "dropped";
}

template <typename World>
Done drop_operand(Site<World>& site) {
  const bool destination = site.dice.below(2) == 1;
  auto& operands = site.operands(destination);
  if (operands.empty()) return std::nullopt;
  const int index = site.dice.below(size_of(operands));
  operands.erase(operands.begin() + index);
  return fmt::format("{} {}", destination ? "destination" : "source", index);
}

template <typename World>
Done duplicate_operand(Site<World>& site) {
  const bool destination = site.dice.below(2) == 1;
  auto& operands = site.operands(destination);
  if (operands.empty()) return std::nullopt;
  const int index = site.dice.below(size_of(operands));
  const auto copy = operands[at(index)];
  operands.push_back(copy);
  return fmt::format("{} {}", destination ? "destination" : "source", index);
}

template <typename World>
Done change_chunk(Site<World>& site) {
  auto* operand = site.pick(Operand::Kind::chunks);
  if (operand == nullptr) return std::nullopt;
  // Also by a whole block: then all positions still agree.
  const int distances[] = {1, -1, shape_of(site.world).chunks, -shape_of(site.world).chunks};
  const int distance = distances[site.dice.below(4)];
  first_chunk(*operand) += distance;
  return fmt::format("by {} to {}", distance, first_chunk(*operand));
}

template <typename World>
Done change_buffer(Site<World>& site) {
  if (rank_count(site.world) > kSmallWorldMax) return std::nullopt;
  auto* operand = site.pick(Operand::Kind::chunks);
  if (operand == nullptr) return std::nullopt;
  const auto was = static_cast<int>(operand->buffer);
  operand->buffer = static_cast<Buffer>((was + 1 + site.dice.below(2)) % 3);
  return fmt::format("to {}", to_string(operand->buffer));
}

// Of one operand, or of all of the step (then it makes sense by itself).
template <typename World>
Done change_count(Site<World>& site) {
  const int difference = site.dice.below(2) == 0 ? 1 : -1;
  if (site.dice.below(2) == 0) {
    auto* operand = site.pick(Operand::Kind::chunks);
    if (operand == nullptr) return std::nullopt;
    operand->count += difference;
    return fmt::format("of one operand to {}", operand->count);
  }
  for (auto* operands : {&site.here().sources, &site.here().destinations})
    for (auto& operand : *operands) operand.count += difference;
  return fmt::format("by {}", difference);
}

Done change_peer(Site<TwoSidedWorld>& site) {
  ExpandedOperand* operand = site.pick(Operand::Kind::message);
  if (operand == nullptr) return std::nullopt;
  operand->index =
      (operand->index + 1 + site.dice.below(site.world.shape.ranks)) % (site.world.shape.ranks + 1);
  return fmt::format("to {}", operand->index);
}

// ---- Faults of the lowered form ----

Done change_stream(Site<LoweredWorld>& site) {
  LoweredOperand* operand = site.pick(Operand::Kind::message);
  if (operand == nullptr) return std::nullopt;
  const int streams = size_of(site.world[at(site.rank)].peers);
  operand->stream = (operand->stream + 1 + site.dice.below(streams)) % (streams + 1);
  return fmt::format("to {}", operand->stream);
}

Done change_ordinal(Site<LoweredWorld>& site) {
  LoweredOperand* operand = site.pick(Operand::Kind::message);
  if (operand == nullptr) return std::nullopt;
  operand->ordinal += site.dice.below(2) == 0 ? 1 : -1;
  return fmt::format("to {}", operand->ordinal);
}

Done change_direct(Site<LoweredWorld>& site) {
  LoweredOperand* operand = site.pick(Operand::Kind::message);
  if (operand == nullptr) return std::nullopt;
  const auto was = static_cast<int>(operand->direct);
  operand->direct = static_cast<DirectForm>((was + 1 + site.dice.below(2)) % 3);
  if (site.dice.below(2) == 0) operand->mine = !operand->mine;
  return fmt::format("to form {}{}", static_cast<int>(operand->direct),
                     operand->mine ? ", mine" : "");
}

// The same wrong choice at both ends, so that they agree.
Done change_touched_memory(Site<LoweredWorld>& site) {
  LoweredOperand* operand = site.pick(Operand::Kind::message);
  if (operand == nullptr || operand->direct == DirectForm::none) return std::nullopt;
  if (site.dice.below(2) == 0)
    operand->chunk += site.dice.below(2) == 0 ? 1 : -1;
  else
    operand->buffer = static_cast<Buffer>((static_cast<int>(operand->buffer) + 1) % 3);
  return fmt::format("to {}[{}]", to_string(operand->buffer), operand->chunk);
}

// A message with no direct form gets one at both ends, as if its queue were needless.
Done unqueue_message(Site<LoweredWorld>& site) {
  if (rank_count(site.world) > kSmallWorldMax) return std::nullopt;
  LoweredStep& sender = site.here();
  for (LoweredOperand& sent : sender.destinations) {
    if (sent.kind != Operand::Kind::message || sent.direct != DirectForm::none) continue;
    if (sender.sources[0].kind != Operand::Kind::chunks || sender.kind != StepKind::copy) continue;
    const Rank peer = site.world[at(site.rank)].peers[at(sent.stream)];
    LoweredProgram& other = site.world[at(peer)];
    for (LoweredStep& receiver : other.steps)
      for (LoweredOperand& received : receiver.sources) {
        if (received.kind != Operand::Kind::message || received.ordinal != sent.ordinal) continue;
        if (other.peers[at(received.stream)] != site.rank) continue;
        sent.direct = received.direct = DirectForm::pull;
        sent.buffer = received.buffer = sender.sources[0].buffer;
        sent.chunk = received.chunk = sender.sources[0].chunk;
        sent.mine = true;
        received.mine = false;
        return fmt::format("message {} to rank {}", sent.ordinal, peer);
      }
  }
  return std::nullopt;
}

Done change_landing(Site<LoweredWorld>& site) {
  LoweredStep& step = site.here();
  const int choices = size_of(step.destinations) + 2;
  step.landing = (step.landing + 1 + 1 + site.dice.below(choices - 1)) % choices - 1;
  return fmt::format("to {}", step.landing);
}

Done toggle_fused(Site<LoweredWorld>& site) {
  auto& depends = site.here().depends;
  if (depends.empty()) return std::nullopt;
  // Where something is fused already, rather that one.
  auto chosen = std::find_if(depends.begin(), depends.end(), [](auto& d) { return d.fused; });
  if (chosen == depends.end() || site.dice.below(4) == 0)
    chosen = depends.begin() + site.dice.below(size_of(depends));
  chosen->fused = !chosen->fused;
  return fmt::format("with step {} {}", chosen->step, chosen->fused ? "set" : "dropped");
}

Done change_message_count(Site<LoweredWorld>& site) {
  LoweredProgram& program = site.world[at(site.rank)];
  if (program.peers.empty()) return std::nullopt;
  auto& counts = site.dice.below(2) == 0 ? program.sends : program.receives;
  ++counts[at(site.dice.below(size_of(counts)))];
  return "";
}

// ---- The tables ----

template <typename World>
struct FaultKind {
  std::string_view name;
  Done (*make)(Site<World>&);
};

template <typename World>
constexpr FaultKind<World> kFaultsOfBoth[] = {
    {"drop step", drop_step},
    {"drop dependency", drop_dependency},
    {"drop dependency", drop_dependency},
    {"reorder messages", reorder_messages},
    {"swap kind", swap_kind},
    {"finish", toggle_finish},
    {"drop operand", drop_operand},
    {"duplicate operand", duplicate_operand},
    {"change chunk", change_chunk},
    {"change buffer", change_buffer},
    {"change count", change_count},
};

constexpr FaultKind<TwoSidedWorld> kTwoSidedFaults[] = {
    {"change peer", change_peer},
};

constexpr FaultKind<LoweredWorld> kLoweredFaults[] = {
    {"change stream", change_stream},
    {"change ordinal", change_ordinal},
    {"change direct form", change_direct},
    {"change touched memory", change_touched_memory},
    {"unqueue message", unqueue_message},
    {"change landing", change_landing},
    {"fused", toggle_fused},
    {"fused", toggle_fused},
    {"change message count", change_message_count},
};

// `own`: the faults that only this form knows.
template <typename World>
std::optional<Mutant<World>> make_mutant(const World& world, SplitMix& dice,
                                         std::span<const FaultKind<World>> own) {
  Mutant<World> mutant{world, {}, {}};
  Site<World> site{mutant.world, dice};
  constexpr int kShared = static_cast<int>(std::size(kFaultsOfBoth<World>));
  const int number = dice.below(kShared + size_of(own));
  const FaultKind<World>& fault =
      number < kShared ? kFaultsOfBoth<World>[number] : own[at(number - kShared)];
  site.rank = dice.below(rank_count(world));
  if (site.steps().empty()) return std::nullopt;
  site.step = dice.below(size_of(site.steps()));
  const StepKind kind = site.here().kind;
  const Done done = fault.make(site);
  if (!done) return std::nullopt;
  mutant.kind = fault.name;
  mutant.what = describe_step(site.rank, site.step, kind);
  if (!done->empty()) mutant.what += " " + *done;
  return mutant;
}

}  // namespace

std::optional<Mutant<TwoSidedWorld>> mutate(const TwoSidedWorld& world, SplitMix& dice) {
  return make_mutant<TwoSidedWorld>(world, dice, kTwoSidedFaults);
}

std::optional<Mutant<LoweredWorld>> mutate(const LoweredWorld& world, SplitMix& dice) {
  return make_mutant<LoweredWorld>(world, dice, kLoweredFaults);
}

}  // namespace tutti::collectives

// What becomes of a mutant: rejected by the verifier, or proved right in some other way:
//
//   same program     after a normal form that only uses what single fields mean (a reduce of one
//                    source is a copy; a copy onto itself does nothing; a landing that nothing
//                    lands in or is offered from means nothing; in a barrier it does not matter how
//                    often one has heard of somebody)
//   implied order    only a dependency is missing, and a search through the remaining waits, those
//                    that hold whatever way messages travel, finds an order for every two steps of
//                    that rank which touch the same memory
//   every order      exhaustive exploration of all interleavings, for small worlds
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "collectives/contract.hpp"
#include "collectives/mutate.hpp"
#include "collectives/verifier_explore.hpp"
#include "collectives/verifier_form.hpp"

namespace tutti::collectives {
namespace {

constexpr int kExploredRanksMax = 4;
constexpr std::int64_t kExploredStatesMax = 400'000;
constexpr int kRareMixtures = 200;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool is_message(const LoweredOperand& operand) { return operand.kind == Operand::Kind::message; }

bool uses_landing(const LoweredStep& step) {
  if (is_message(step.sources[0]) && step.sources[0].direct == DirectForm::push) return true;
  if (step.kind == StepKind::copy && !is_message(step.sources[0])) return false;
  return std::any_of(step.destinations.begin(), step.destinations.end(),
                     [](const LoweredOperand& d) { return d.direct == DirectForm::pull; });
}

LoweredStep normal_form(LoweredStep step, Collective collective) {
  if (step.sources.empty() || step.destinations.empty()) return step;
  if (collective == Collective::barrier && step.kind == StepKind::reduce) {
    std::vector<LoweredOperand> distinct;
    for (const LoweredOperand& source : step.sources)
      if (is_message(source) ||
          std::find(distinct.begin(), distinct.end(), source) == distinct.end())
        distinct.push_back(source);
    step.sources = distinct;
  }
  if (step.kind == StepKind::reduce && step.sources.size() == 1 && !step.finish)
    step.kind = StepKind::copy;
  if (!uses_landing(step)) step.landing = -1;
  if (step.kind == StepKind::copy && step.landing < 0 && step.destinations.size() > 1)
    std::erase_if(step.destinations, [&](const LoweredOperand& d) { return d == step.sources[0]; });
  step.depends.clear();
  return step;
}

// Where the two ends of every message are: (from, to, ordinal) -> (rank, step).
class Ends {
 public:
  using Place = std::pair<Rank, int>;

  explicit Ends(const LoweredWorld& world) {
    for (const LoweredProgram& program : world)
      for (std::size_t s = 0; s < program.steps.size(); ++s) {
        const Place place{program.rank, static_cast<int>(s)};
        for (const LoweredOperand& d : program.steps[s].destinations) {
          if (!is_message(d)) continue;
          sender_[key(program, d, true)] = place;
          travels_[key(program, d, true)] = {d.direct, d.buffer};
        }
        for (const LoweredOperand& o : program.steps[s].sources)
          if (is_message(o)) receiver_[key(program, o, false)] = place;
      }
  }

  Place receiver(const LoweredProgram& program, const LoweredOperand& sent) const {
    return receiver_.at(key(program, sent, true));
  }

  Place sender(const LoweredProgram& program, const LoweredOperand& received) const {
    return sender_.at(key(program, received, false));
  }

  // Executions that are over, however messages travel, when a step of `program` executes.
  std::vector<Place> before(const LoweredProgram& program, const LoweredStep& step) const {
    std::vector<Place> found;
    for (const LoweredDependency& dependency : step.depends)
      if (!dependency.fused) found.push_back({program.rank, dependency.step});
    for (const LoweredOperand& source : step.sources) {
      if (!is_message(source)) continue;
      const Key message = key(program, source, false);
      found.push_back(sender_.at(message));
      // A push is granted in order, but waits for nothing when it is read.
      if (source.direct == DirectForm::push) continue;
      if (const auto earlier = alike_before(message)) found.push_back(receiver_.at(*earlier));
    }
    for (const LoweredOperand& destination : step.destinations) {
      if (!is_message(destination)) continue;
      if (const auto earlier = alike_before(key(program, destination, true)))
        found.push_back(sender_.at(*earlier));
    }
    return found;
  }

 private:
  using Key = std::tuple<Rank, Rank, int>;

  static Key key(const LoweredProgram& program, const LoweredOperand& operand, bool sent) {
    const Rank peer = program.peers[at(operand.stream)];
    return sent ? Key{program.rank, peer, operand.ordinal}
                : Key{peer, program.rank, operand.ordinal};
  }

  // The latest earlier message of the stream that travels as this one does in every call: only
  // those are sent and taken in order.
  std::optional<Key> alike_before(const Key& message) const {
    Key earlier = message;
    while (--std::get<2>(earlier) >= 0)
      if (const auto known = travels_.find(earlier);
          known != travels_.end() && known->second == travels_.at(message))
        return earlier;
    return std::nullopt;
  }

  std::map<Key, Place> sender_;
  std::map<Key, Place> receiver_;
  std::map<Key, std::pair<DirectForm, Buffer>> travels_;  // and what is touched when direct
};

// All executions that are over when the step at `start` executes.
std::set<Ends::Place> over_before(const LoweredWorld& world, const Ends& ends, Ends::Place start) {
  std::set<Ends::Place> over;
  std::vector<Ends::Place> open = {start};
  while (!open.empty()) {
    const LoweredProgram& program = world[at(open.back().first)];
    const LoweredStep& step = program.steps[at(open.back().second)];
    open.pop_back();
    for (const Ends::Place& earlier : ends.before(program, step))
      if (over.insert(earlier).second) open.push_back(earlier);
  }
  return over;
}

// What a step does to its own rank's memory, itself or through a peer, in any form of its messages:
// first chunks and counts in a numbering that makes aliased input and output one.
struct Touched {
  std::set<int> read;
  std::set<int> written;
  std::set<int> offered;  // that peers may pull

  Touched(const LoweredProgram& program, const LoweredStep& step) {
    for (const LoweredOperand& source : step.sources)
      if (!is_message(source)) add(program, source, read);
    for (const LoweredOperand& destination : step.destinations) {
      if (!is_message(destination)) add(program, destination, written);
      if (is_message(destination) && destination.direct == DirectForm::pull)
        add(program, destination, offered);
    }
  }

  static void add(const LoweredProgram& program, const LoweredOperand& operand,
                  std::set<int>& cells) {
    const ScheduleShape& shape = program.shape;
    const int outputs = contract_chunks(shape, Buffer::output);
    for (int k = 0; k < operand.count; ++k) {
      const int chunk = operand.chunk + k;
      const int alias = operand.buffer == Buffer::input ? contract_alias(shape, program.rank, chunk)
                        : operand.buffer == Buffer::output ? chunk
                                                           : -1;
      // Inputs and scratch beyond the outputs, interleaved so that no two numbers collide.
      cells.insert(alias >= 0 ? alias
                              : outputs + 2 * chunk + (operand.buffer == Buffer::scratch ? 1 : 0));
    }
  }
};

bool overlap(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int cell) { return b.count(cell) > 0; });
}

// Shows for one rank that every two of its steps which touch the same memory are still ordered. All
// that happens to a rank's memory happens within its own steps (what peers do lies between a grant
// and its use, or between an offer and its completion), so nothing else needs to be shown when only
// dependencies of that rank are missing.
class LocalOrder {
 public:
  LocalOrder(const LoweredProgram& original, const LoweredWorld& mutant, const Ends& ends)
      : original_(original), program_(mutant[at(original.rank)]), mutant_(mutant), ends_(ends) {
    for (const LoweredStep& step : program_.steps) touched_.emplace_back(program_, step);
  }

  bool holds() const {
    for (int later = 0; later < static_cast<int>(program_.steps.size()); ++later)
      if (!holds_for(later)) return false;
    return true;
  }

 private:
  bool holds_for(int later) const {
    const std::set<int> waited = waited_for(later);
    std::optional<std::set<Ends::Place>> over;
    for (int earlier = 0; earlier < later; ++earlier) {
      if (!conflict(earlier, later) || waited.count(earlier) > 0) continue;
      if (has_fused(program_, earlier, later) && has_fused(original_, earlier, later)) continue;
      if (!over) over = over_before(mutant_, ends_, {program_.rank, later});
      if (!is_over(earlier, later, *over)) return false;
      for (const LoweredOperand& source : program_.steps[at(later)].sources) {
        if (!is_message(source) || source.direct != DirectForm::push) continue;
        const Ends::Place sender = ends_.sender(program_, source);
        std::set<Ends::Place> over_there = over_before(mutant_, ends_, sender);
        // What was fused may be taken by the very step that stores.
        if (has_fused(original_, earlier, later)) over_there.insert(sender);
        if (!is_over(earlier, later, over_there)) return false;
      }
    }
    return true;
  }

  // Steps that are complete when `later` starts because of dependencies.
  std::set<int> waited_for(int later) const {
    std::set<int> waited;
    std::vector<int> open = {later};
    while (!open.empty()) {
      const int step = open.back();
      open.pop_back();
      for (const LoweredDependency& dependency : program_.steps[at(step)].depends)
        if (!dependency.fused && waited.insert(dependency.step).second)
          open.push_back(dependency.step);
    }
    return waited;
  }

  bool conflict(int earlier, int later) const {
    const Touched& a = touched_[at(earlier)];
    const Touched& b = touched_[at(later)];
    return overlap(a.written, b.written) || overlap(a.written, b.read) ||
           overlap(a.read, b.written);
  }

  static bool has_fused(const LoweredProgram& program, int earlier, int later) {
    const auto& depends = program.steps[at(later)].depends;
    return std::find(depends.begin(), depends.end(), LoweredDependency{earlier, true}) !=
           depends.end();
  }

  // Whether `earlier` has done all that conflicts with `later`: executed, and been taken by those
  // who pull what `later` overwrites.
  bool is_over(int earlier, int later, const std::set<Ends::Place>& over) const {
    if (over.count({program_.rank, earlier}) == 0) return false;
    if (!overlap(touched_[at(earlier)].offered, touched_[at(later)].written)) return true;
    for (const LoweredOperand& destination : program_.steps[at(earlier)].destinations)
      if (is_message(destination) && destination.direct == DirectForm::pull &&
          over.count(ends_.receiver(program_, destination)) == 0)
        return false;
    return true;
  }

  const LoweredProgram& original_;
  const LoweredProgram& program_;
  const LoweredWorld& mutant_;
  const Ends& ends_;
  std::vector<Touched> touched_;
};

bool same_but_for_order(const LoweredWorld& a, const LoweredWorld& b) {
  for (std::size_t r = 0; r < a.size(); ++r) {
    LoweredProgram x = a[r];
    LoweredProgram y = b[r];
    for (LoweredStep& step : x.steps) step = normal_form(std::move(step), x.shape.collective);
    for (LoweredStep& step : y.steps) step = normal_form(std::move(step), y.shape.collective);
    if (!(x == y)) return false;
  }
  return true;
}

// Whether all that a step of the mutant waits for, the original waits for too.
bool only_waits_less(const LoweredStep& original, const LoweredStep& mutant) {
  for (const LoweredDependency& kept : mutant.depends) {
    const bool was_there = std::any_of(original.depends.begin(), original.depends.end(),
                                       [&](const LoweredDependency& d) {
                                         return d.step == kept.step && (kept.fused || !d.fused);
                                       });
    if (!was_there) return false;
  }
  return true;
}

// Requires  worlds of the same steps. Fewer waits cannot make steps wait for each other, so it is
// enough that all accesses to memory keep their order.
std::string prove_order(const LoweredWorld& original, const LoweredWorld& mutant) {
  std::string proof = "same program";
  std::optional<Ends> ends;
  for (std::size_t r = 0; r < original.size(); ++r) {
    bool changed = false;
    for (std::size_t s = 0; s < original[r].steps.size(); ++s) {
      if (!only_waits_less(original[r].steps[s], mutant[r].steps[s])) return {};
      changed = changed || original[r].steps[s].depends != mutant[r].steps[s].depends;
    }
    if (!changed) continue;
    if (!ends) ends.emplace(mutant);
    if (!LocalOrder(original[r], mutant, *ends).holds()) return {};
    proof = "other waits imply the order";
  }
  return proof;
}

std::string prove_by_exploring(const LoweredWorld& mutant,
                               const std::vector<Addressability>& modes) {
  if (static_cast<int>(mutant.size()) > kExploredRanksMax) return {};
  ExploreOptions options;
  options.states_max = kExploredStatesMax;
  std::int64_t states = 0;
  for (const auto& addressable : modes) {
    const Exploration exploration = explore_lowered(mutant, addressable, options);
    if (!exploration.proved()) return {};
    states += exploration.states;
  }
  return fmt::format("right in every order ({} states)", states);
}

MutantFate judge_in_modes(const LoweredWorld& original, const LoweredWorld& mutant,
                          const std::vector<Addressability>& modes) {
  MutantFate fate;
  for (const auto& addressable : modes) {
    const Verdict verdict = verify_lowered(mutant, addressable);
    if (verdict.ok()) continue;
    fate.fault = verdict.fault;
    fate.reason = verdict.reason;
    return fate;
  }
  fate.proof = prove_equivalent(original, mutant);
  if (fate.proof.empty()) fate.proof = prove_by_exploring(mutant, modes);
  return fate;
}

// What only some mixture of direct and staged messages shows: tried where nothing else decided.
MutantFate judge_in_mixtures(const LoweredWorld& mutant) {
  for (int seed = 0; seed < kRareMixtures; ++seed) {
    const auto addressable =
        some_direct(static_cast<int>(mutant.size()), static_cast<std::uint64_t>(seed));
    const Verdict verdict = verify_lowered(mutant, addressable);
    if (!verdict.ok()) return {verdict.fault, verdict.reason, {}};
  }
  return {};
}

LoweredWorld staged(const TwoSidedWorld& world) {
  LoweredWorld lowered;
  for (std::size_t r = 0; r < world.programs.size(); ++r)
    lowered.push_back(as_lowered(world.shape, static_cast<Rank>(r), world.programs[r]));
  return lowered;
}

template <typename World, typename Judge>
void run(std::string_view name, const World& world, int count, SplitMix& dice, const Judge& judge,
         MutationReport& report) {
  // Some faults apply nowhere in a small world; then fewer mutants are made.
  const int attempts_max = 50 * count;
  int made = 0;
  for (int attempt = 0; attempt < attempts_max && made < count; ++attempt) {
    const std::optional<Mutant<World>> mutant = mutate(world, dice);
    if (!mutant || mutant->world == world) continue;
    ++made;
    report.add(name, mutant->kind, mutant->what, judge(*mutant));
  }
}

}  // namespace

std::string prove_equivalent(const LoweredWorld& original, const LoweredWorld& mutant) {
  return same_but_for_order(original, mutant) ? prove_order(original, mutant) : "";
}

MutantFate judge_mutant(const TwoSidedWorld& original, const Mutant<TwoSidedWorld>& mutant) {
  return judge_in_modes(staged(original), staged(mutant.world),
                        {all_staged(static_cast<int>(mutant.world.programs.size()))});
}

MutantFate judge_mutant(const LoweredWorld& original, const Mutant<LoweredWorld>& mutant,
                        int mixtures) {
  const int ranks = static_cast<int>(mutant.world.size());
  std::vector<Addressability> modes = {all_staged(ranks), all_direct(ranks)};
  for (int seed = 0; seed < mixtures; ++seed)
    modes.push_back(some_direct(ranks, static_cast<std::uint64_t>(seed)));
  MutantFate fate = judge_in_modes(original, mutant.world, modes);
  const bool undecided = !fate.rejected() && !fate.equivalent();
  return undecided ? judge_in_mixtures(mutant.world) : fate;
}

std::int64_t MutationReport::rejected() const {
  std::int64_t sum = 0;
  for (std::int64_t count : rejected_by) sum += count;
  return sum;
}

std::int64_t MutationReport::total() const {
  return rejected() + equivalent + static_cast<std::int64_t>(survivors.size());
}

void MutationReport::add(std::string_view name, std::string_view kind, std::string_view what,
                         const MutantFate& fate) {
  if (fate.rejected()) {
    ++rejected_by[static_cast<std::size_t>(fate.fault)];
    return;
  }
  const std::string line = fmt::format("{}: {}, {}", name, kind, what);
  if (fate.equivalent()) {
    ++equivalent;
    proofs.push_back(line + ": " + fate.proof);
  } else {
    survivors.push_back(line);
  }
}

void MutationReport::add(const MutationReport& other) {
  for (std::size_t i = 0; i < rejected_by.size(); ++i) rejected_by[i] += other.rejected_by[i];
  equivalent += other.equivalent;
  proofs.insert(proofs.end(), other.proofs.begin(), other.proofs.end());
  survivors.insert(survivors.end(), other.survivors.begin(), other.survivors.end());
}

MutationReport run_mutants(std::string_view name, const TwoSidedWorld& two_sided,
                           const LoweredWorld& lowered, int count, std::uint64_t seed) {
  constexpr int kMixtures = 3;
  MutationReport report;
  SplitMix dice(seed);
  run(
      std::string(name) + " (two-sided)", two_sided, count, dice,
      [&](const Mutant<TwoSidedWorld>& mutant) { return judge_mutant(two_sided, mutant); }, report);
  run(
      std::string(name) + " (lowered)", lowered, count, dice,
      [&](const Mutant<LoweredWorld>& mutant) { return judge_mutant(lowered, mutant, kMixtures); },
      report);
  return report;
}

}  // namespace tutti::collectives

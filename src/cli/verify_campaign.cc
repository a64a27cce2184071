// Enumerates schedules and proves them, a few at a time.
#include "cli/verify_campaign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "collectives/contract.hpp"
#include "collectives/expand.hpp"
#include "collectives/lowering.hpp"
#include "collectives/refine.hpp"
#include "collectives/verifier.hpp"
#include "collectives/verifier_form.hpp"

namespace tutti::cli {
namespace {

using collectives::Addressability;
using collectives::Algorithm;
using collectives::GroupSizes;
using collectives::LoweredProgram;
using collectives::Verdict;

// Mixtures of direct and staged are tried in worlds up to this size, so many of them.
constexpr int kMixedRanksMax = 9;
constexpr int kMixtures = 4;
// Of a schedule from outside, over all ranks: what keeps its proof within some hundred megabytes.
constexpr std::int64_t kOperandsMax = 1 << 20;
// Worlds that are damaged.
constexpr int kMutantRanksMin = 2;
constexpr int kMutantRanksMax = 9;

std::string name_of(const Algorithm& algorithm) {
  return fmt::format("{}/{}", to_string(algorithm.collective), algorithm.name);
}

bool is_wanted(const Algorithm& algorithm, const CampaignOptions& options) {
  return (!options.collective || algorithm.collective == *options.collective) &&
         (options.algorithm.empty() || algorithm.name == options.algorithm);
}

// All ways to cut so many ranks into groups within groups of at least two, after `inner`.
void add_groups(int ranks, const std::vector<int>& inner, std::vector<GroupSizes>& found) {
  for (int size = 2; size <= ranks / 2; ++size) {
    if (ranks % size != 0) continue;
    std::vector<int> sizes = inner;
    sizes.push_back(size);
    found.emplace_back(sizes);
    add_groups(ranks / size, sizes, found);
  }
}

// None where the algorithm does not care, or nothing divides the world.
std::vector<GroupSizes> groups_of(const Algorithm& algorithm, int ranks) {
  std::vector<GroupSizes> found;
  if (algorithm.grouped) add_groups(ranks, {}, found);
  if (found.empty()) found.emplace_back();
  return found;
}

int root_count(const Algorithm& algorithm, int ranks) {
  if (algorithm.in_turn()) return 2;
  const Collective collective = algorithm.collective;
  return has_root(collective) || collective == Collective::send_recv ? ranks : 1;
}

std::string_view name_of_root(const Algorithm& algorithm) {
  if (algorithm.in_turn()) return "turn";
  return algorithm.collective == Collective::send_recv ? "shift" : "root";
}

void add_cases(const Algorithm& algorithm, int ranks, std::vector<Case>& cases,
               CampaignReport& report) {
  for (const GroupSizes& groups : groups_of(algorithm, ranks))
    for (Rank root = 0; root < root_count(algorithm, ranks); ++root) {
      const Result<ScheduleShape> shape = algorithm.shape(ranks, root, groups);
      if (shape.ok()) {
        cases.push_back({&algorithm, ranks, root, groups});
        continue;
      }
      NotApplicable& none = report.not_applicable[name_of(algorithm)];
      if (none.reason.empty()) none.reason = shape.status().message();
      if (none.ranks.empty() || none.ranks.back() != ranks) none.ranks.push_back(ranks);
    }
}

// What a schedule comes to with its loops unrolled.
struct Extent {
  std::int64_t steps = 0;
  std::int64_t operands = 0;
};

Extent extent_of(const Schedule& schedule) {
  Extent extent;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    for (const Repeat& part : schedule.program(rank).parts)
      for (const Step& step : part.body) {
        extent.steps += part.times;
        extent.operands +=
            static_cast<std::int64_t>(part.times) *
            static_cast<std::int64_t>(step.sources.size() + step.destinations.size());
      }
  return extent;
}

// Requires  steps that stay within their buffers.
std::vector<ExpandedProgram> expand_all(const Schedule& schedule) {
  std::vector<ExpandedProgram> programs;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    programs.push_back(collectives::expand(schedule, rank));
  return programs;
}

void note(const std::string& name, std::string_view form, const Verdict& verdict,
          CampaignReport& report) {
  ++report.worlds;
  report.steps += verdict.steps;
  report.messages += verdict.messages;
  if (!verdict.ok())
    report.failures.push_back(
        fmt::format("{}, {}: {}: {}", name, form, to_string(verdict.fault), verdict.reason));
}

// `group`: ranks per node, where the schedule was told for nodes.
void prove_lowered(const std::string& name, const Schedule& schedule, int group,
                   CampaignReport& report) {
  const int ranks = schedule.shape.ranks;
  std::vector<LoweredProgram> programs = collectives::lower_all(schedule);
  auto prove = [&](std::string_view form, const Addressability& addressable) {
    note(name, form, collectives::verify_lowered(programs, addressable), report);
  };
  prove("lowered, all staged", collectives::all_staged(ranks));
  prove("lowered, all direct", collectives::all_direct(ranks));
  for (int size = 2; size < ranks; ++size)
    if (size == group || (ranks <= kMixedRanksMax && ranks % size == 0))
      prove(fmt::format("lowered, direct within nodes of {}", size),
            collectives::direct_within(ranks, size));
  for (int seed = 0; seed < (ranks <= kMixedRanksMax ? kMixtures : 0); ++seed)
    prove(fmt::format("lowered, mixture {}", seed),
          collectives::some_direct(ranks, static_cast<std::uint64_t>(seed)));
  std::vector<LoweredProgram> pulled =
      collectives::lower_all(schedule, collectives::Copies::pulled);
  if (pulled == programs) return;
  programs = std::move(pulled);
  prove("lowered, copies pulled", collectives::all_direct(ranks));
  for (int seed = 0; seed < (ranks <= kMixedRanksMax ? kMixtures : 0); ++seed)
    prove(fmt::format("lowered, copies pulled, mixture {}", seed),
          collectives::some_direct(ranks, static_cast<std::uint64_t>(seed)));
}

void add(CampaignReport& total, CampaignReport part) {
  total.schedules += part.schedules;
  total.worlds += part.worlds;
  total.steps += part.steps;
  total.messages += part.messages;
  total.failures.insert(total.failures.end(), part.failures.begin(), part.failures.end());
  total.mutants.add(part.mutants);
}

// Damages the schedule of one case; `count` mutants of each form.
void damage_case(const Case& one, int count, CampaignReport& report) {
  const Result<Schedule> schedule =
      collectives::build(*one.algorithm, one.ranks, one.root, one.groups);
  if (!schedule.ok()) return;
  const collectives::TwoSidedWorld world{schedule->shape, expand_all(*schedule)};
  const collectives::LoweredWorld lowered = collectives::lower_all(*schedule);
  // A world that is wrong itself says nothing about its mutants; its proof has failed already.
  if (!collectives::verify(world.shape, world.programs).ok()) return;
  const auto seed = static_cast<std::uint64_t>(one.ranks * 1000 + one.root);
  report.mutants.add(collectives::run_mutants(one.name(), world, lowered, count, seed));
}

bool is_damaged(const Case& one) {
  return one.ranks >= kMutantRanksMin && one.ranks <= kMutantRanksMax && one.root <= 1;
}

}  // namespace

std::string Case::name() const {
  std::string text = fmt::format("{}, {} ranks", name_of(*algorithm), ranks);
  if (root_count(*algorithm, 2) > 1) text += fmt::format(", {} {}", name_of_root(*algorithm), root);
  if (!groups.sizes().empty()) text += fmt::format(", {} per node", groups.text());
  return text;
}

std::vector<Case> campaign_cases(const CampaignOptions& options, CampaignReport& report) {
  std::vector<Case> cases;
  for (const Algorithm& algorithm : collectives::all_algorithms())
    for (int ranks = options.ranks_min; ranks <= options.ranks_max; ++ranks)
      if (is_wanted(algorithm, options)) add_cases(algorithm, ranks, cases, report);
  std::stable_sort(cases.begin(), cases.end(),
                   [](const Case& a, const Case& b) { return a.ranks > b.ranks; });
  return cases;
}

void prove_schedule(const std::string& name, const Schedule& schedule, int group,
                    const CampaignOptions& options, CampaignReport& report) {
  const std::vector<ExpandedProgram> programs = expand_all(schedule);
  const Verdict verdict = collectives::verify(schedule.shape, programs);
  if (options.two_sided || !verdict.ok()) note(name, "two-sided", verdict, report);
  // Lowering is only defined for schedules that are right.
  if (options.lowered && verdict.ok()) prove_lowered(name, schedule, group, report);
}

void prove_case(const Case& one, const CampaignOptions& options, CampaignReport& report) {
  const Result<Schedule> schedule =
      collectives::build(*one.algorithm, one.ranks, one.root, one.groups);
  ++report.schedules;
  if (!schedule.ok()) {
    report.failures.push_back(one.name() + ": " + schedule.status().message());
    return;
  }
  for (int factor : options.chunk_factors) {
    if (factor == 1) prove_schedule(one.name(), *schedule, one.groups.outermost(), options, report);
    if (factor == 1 || schedule->shape.collective == Collective::barrier) continue;
    prove_schedule(fmt::format("{}, {}x wider", one.name(), factor),
                   collectives::widened(*schedule, factor), one.groups.outermost(), options,
                   report);
    if (const auto sliced = collectives::sliced(*schedule, factor))
      prove_schedule(fmt::format("{}, {} slices", one.name(), factor), *sliced,
                     one.groups.outermost(), options, report);
  }
}

void prove_foreign(const std::string& name, const Schedule& schedule,
                   const CampaignOptions& options, CampaignReport& report) {
  ++report.schedules;
  if (const Status shape = collectives::check_shape(schedule.shape); !shape.ok()) {
    report.failures.push_back(name + ": " + shape.message());
    return;
  }
  const Extent extent = extent_of(schedule);
  if (extent.steps > collectives::kVerifiedStepsMax || extent.operands > kOperandsMax) {
    report.failures.push_back(fmt::format("{}: more than {} steps or {} operands", name,
                                          collectives::kVerifiedStepsMax, kOperandsMax));
    return;
  }
  std::vector<LoweredProgram> programs;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    programs.push_back(
        collectives::as_lowered(schedule.shape, rank, collectives::unroll(schedule, rank)));
  const Verdict form = collectives::check_form(programs);
  if (form.ok()) return prove_schedule(name, schedule, 1, options, report);
  note(name, "two-sided", form, report);
}

CampaignReport run_campaign(const CampaignOptions& options,
                            const std::function<void(double, const CampaignReport&)>& progress) {
  CampaignReport total;
  const std::vector<Case> cases = campaign_cases(options, total);
  const auto damaged = std::count_if(cases.begin(), cases.end(), is_damaged);
  // Each damaged case gives as many mutants of either form; more than asked for, because some
  // worlds are too small for some faults.
  const int mutants_each =
      damaged == 0 ? 0 : static_cast<int>((options.mutants + damaged - 1) / damaged);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t done = 0;
  auto work = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      CampaignReport part;
      prove_case(cases[i], options, part);
      if (mutants_each > 0 && is_damaged(cases[i])) damage_case(cases[i], mutants_each, part);
      const std::lock_guard lock(mutex);
      add(total, std::move(part));
      progress(static_cast<double>(++done) / static_cast<double>(cases.size()), total);
    }
  };
  const unsigned threads =
      options.threads > 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  std::sort(total.failures.begin(), total.failures.end());
  std::sort(total.mutants.survivors.begin(), total.mutants.survivors.end());
  std::sort(total.mutants.proofs.begin(), total.mutants.proofs.end());
  return total;
}

}  // namespace tutti::cli

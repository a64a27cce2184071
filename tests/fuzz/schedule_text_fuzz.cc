// A file that a user gives to `tutti verify`; it may come from anywhere.
//
// Beyond not crashing: what parses prints and parses again to the same; memory stays within a
// multiple of the text, beside one number for each rank; small schedules go the whole way: form,
// proof, and, where proved, lowering, whose result must be proved too.
#include <utility>

#include "collectives/algorithms/table.hpp"
#include "collectives/builder.hpp"
#include "collectives/contract.hpp"
#include "collectives/expand.hpp"
#include "collectives/lowering.hpp"
#include "collectives/text.hpp"
#include "collectives/verifier.hpp"
#include "collectives/verifier_form.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::collectives;

constexpr std::size_t kRanksMemory = std::size_t{8} << 20;

// Small enough to be proved thousands of times a second.
bool is_small(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  if (shape.ranks > 8 || shape.chunks > 16 || shape.scratch_blocks > 16) return false;
  std::size_t operands = 0;
  for (Rank rank = 0; rank < shape.ranks; ++rank)
    for (const Repeat& part : schedule.program(rank).parts)
      for (const Step& step : part.body)
        operands += static_cast<std::size_t>(part.times) *
                    (1 + step.sources.size() + step.destinations.size());
  return operands <= 512;
}

void prove(const Schedule& schedule) {
  if (!check_shape(schedule.shape).ok()) return;
  std::vector<LoweredProgram> forms;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    forms.push_back(as_lowered(schedule.shape, rank, unroll(schedule, rank)));
  if (!check_form(forms).ok()) return;
  std::vector<ExpandedProgram> programs;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    programs.push_back(expand(schedule, rank));
  const Verdict verdict = verify(schedule.shape, programs);
  TUTTI_ASSERT(verdict.ok() || !verdict.reason.empty(), "a refusal has a reason");
  if (!verdict.ok()) return;
  const int ranks = schedule.shape.ranks;
  const std::vector<LoweredProgram> lowered = lower_all(schedule);
  TUTTI_ASSERT(verify_lowered(lowered, all_staged(ranks)).ok(),
               "what is right stays right, staged");
  TUTTI_ASSERT(verify_lowered(lowered, all_direct(ranks)).ok(),
               "what is right stays right, direct");
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Result<Schedule> schedule = Schedule();
  {
    const AllocationLimit limit(128 * input.size() + kRanksMemory);
    schedule = parse_schedule(input);
  }
  if (!schedule.ok()) return;
  if (schedule->shape.ranks <= 4096) {
    const Result<Schedule> again = parse_schedule(to_text(*schedule));
    TUTTI_ASSERT(again.ok() && *again == *schedule, "a schedule survives the way there and back");
  }
  if (is_small(*schedule)) prove(*schedule);
}

std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (const Algorithm& algorithm : all_algorithms())
    for (const int ranks : {2, 3, 4}) {
      const int group = algorithm.grouped ? 2 : 1;
      const Result<Schedule> schedule = build(algorithm, ranks, 0, group);
      if (!schedule.ok()) continue;
      std::string text = to_text(*schedule);
      if (text.size() <= input_bytes_max()) made.push_back(std::move(text));
    }
  made.push_back(
      "tutti schedule 1\nalgorithm by-hand # a comment\ncollective all_reduce\nranks 1\n"
      "program for 0\nfinish input[0 : 2], scratch[3+2*(2*r-i+1)%4] -> output[(r)%1]\n"
      "repeat 3\ncopy nothing -> nothing\nend\nprogram for nobody\n");
  return made;
}

}  // namespace tutti::fuzz

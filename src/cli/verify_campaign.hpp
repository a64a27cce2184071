// verify_campaign.hpp: proving many schedules: which ones there are, doing them on all cores, and
// the sums. Knows nothing of command lines.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/table.hpp"
#include "collectives/mutate.hpp"

namespace tutti::cli {

struct CampaignOptions {
  int ranks_min = 1;
  int ranks_max = 9;
  std::optional<Collective> collective;  // all without
  std::string algorithm;                 // all when empty
  std::vector<int> chunk_factors = {1, 2, 3};
  bool two_sided = true;
  bool lowered = true;
  int mutants = 0;
  unsigned threads = 0;  // 0: one per core
};

// One schedule as it is told.
struct Case {
  const collectives::Algorithm* algorithm = nullptr;
  int ranks = 1;
  Rank root = 0;
  collectives::GroupSizes groups;

  std::string name() const;  // "all_reduce/ring, 4 ranks"
};

struct NotApplicable {
  std::vector<int> ranks;
  std::string reason;  // of the first
};

struct CampaignReport {
  std::int64_t schedules = 0;  // told by algorithms
  std::int64_t worlds = 0;     // proofs: schedule x chunking x form x addressability
  std::int64_t steps = 0;
  std::int64_t messages = 0;
  std::vector<std::string> failures;
  std::map<std::string, NotApplicable> not_applicable;  // by "all_gather/doubling"
  collectives::MutationReport mutants;

  bool ok() const { return failures.empty() && mutants.survivors.empty(); }
};

// All that the options ask for, the largest first; fills `not_applicable`.
std::vector<Case> campaign_cases(const CampaignOptions& options, CampaignReport& report);

// Proves one schedule in all chunkings and forms that the options ask for.
void prove_case(const Case& one, const CampaignOptions& options, CampaignReport& report);

// Proves a schedule as it is; `group`: ranks per node, 1 for none.
// Requires  steps that stay within their buffers.
void prove_schedule(const std::string& name, const Schedule& schedule, int group,
                    const CampaignOptions& options, CampaignReport& report);

// The same for a schedule that may come from anywhere.
void prove_foreign(const std::string& name, const Schedule& schedule,
                   const CampaignOptions& options, CampaignReport& report);

// Everything. `progress` is called now and then, by one thread at a time, with the share done.
CampaignReport run_campaign(const CampaignOptions& options,
                            const std::function<void(double, const CampaignReport&)>& progress);

}  // namespace tutti::cli

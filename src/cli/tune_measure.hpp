// tune_measure.hpp: what `tutti tune` does between the ranks of one world: the time of a message,
// of a byte, and of every way of doing a collective that may be the best, at a few sizes. All of
// them by the executor that runs calls, taking turns, medians of several rounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "collectives/planner.hpp"
#include "collectives/tuning.hpp"
#include "runtime/communicator_state.hpp"

namespace tutti::cli {

// What is measured, and how long that may take.
struct TuneWork {
  std::vector<Collective> collectives;
  std::vector<std::size_t> sizes;  // as nccl-tests count them
  std::chrono::duration<double> time{1};
  bool messages = false;  // between ranks 0 and 1: where no other rank wants their cores
};

// What one world found.
struct TuneFindings {
  double message_us = 0;    // a message of 8 bytes, one way; 0: not measured
  double bytes_per_ns = 0;  // of one of 4 MiB, one way
  collectives::TuningPlace place;
  std::vector<collectives::TunedUse> by_model;  // what the model takes at each size, unmeasured
};

// What may be the best way of a call: what the model takes first, then the next ones that it
// thinks not much slower, and the first ones with other channels and slices. Equal on all ranks.
Result<std::vector<collectives::TunedChoice>> tune_candidates(
    collectives::Planner& planner, const collectives::PlanQuery& query,
    const collectives::PlannerOptions& options);

// Called by all ranks of a world. Blocking  about as long as the work says.
Result<TuneFindings> tune_measure(runtime::CommunicatorParts parts, const TuneWork& work);

// As text, from the process of rank 0 to that of the command.
std::string encode(const TuneFindings& findings);
Result<TuneFindings> decode_findings(const std::string& text);

}  // namespace tutti::cli

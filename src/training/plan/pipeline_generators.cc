// pipeline_generators.cc: each schedule is a loop over one rank's actions.
#include "training/plan/pipeline_generators.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

// All ranks together have no more actions: 16384 ranks with 340 micro-batches, or 8 with 700,000.
constexpr std::int64_t kMostActions = std::int64_t{1} << 24;

using Actions = std::vector<Action>;

// A schedule in which rank r does what actions_of(r) says.
template <typename ActionsOf>
PipelineSchedule build(std::string name, int ranks, int micro_batches, int chunks,
                       ActionsOf actions_of) {
  TRAINING_CHECK(ranks >= 1 && micro_batches >= 1 && chunks >= 1, "a schedule of something");
  PipelineSchedule made{std::move(name), chunks, micro_batches, {}};
  for (int rank = 0; rank < ranks; ++rank) made.ranks.push_back(actions_of(rank));
  return made;
}

// The k-th forward, or backward, that a rank does when it takes `ranks` micro-batches through one
// chunk after the other; backwards begin with the last chunk.
Action interleaved_action(Action::Kind kind, int k, int ranks, int chunks) {
  const int round = k / (ranks * chunks);
  const int chunk = k % (ranks * chunks) / ranks;
  return {kind, is_forward(kind) ? chunk : chunks - 1 - chunk, round * ranks + k % ranks};
}

Status too_many(int ranks, int micro_batches, int chunks) {
  return {StatusCode::invalid_argument,
          fmt::format("a schedule of {} ranks, {} micro-batches and {} chunks has more than {} "
                      "actions",
                      ranks, micro_batches, chunks, kMostActions)};
}

Status check_counts(std::string_view name, int ranks, int micro_batches, int chunks) {
  const std::pair<std::string_view, int> counts[] = {
      {"ranks", ranks}, {"micro-batches", micro_batches}, {"chunks", chunks}};
  for (const auto& [what, count] : counts) {
    if (count < 1)
      return {StatusCode::invalid_argument,
              fmt::format("schedule '{}' with {} {}: at least 1 is needed", name, count, what)};
  }
  // Three actions for each, when the backward is split.
  if (std::int64_t{3} * ranks > kMostActions / micro_batches ||
      std::int64_t{3} * ranks * micro_batches > kMostActions / chunks)
    return too_many(ranks, micro_batches, chunks);
  if (name != "interleaved" && chunks != 1) {
    return {StatusCode::invalid_argument,
            fmt::format("schedule '{}' has one chunk on each rank, not {}; 'interleaved' has "
                        "several",
                        name, chunks)};
  }
  return {};
}

}  // namespace

PipelineSchedule naive_schedule(int ranks, int micro_batches) {
  return build("naive", ranks, micro_batches, 1, [&](int) {
    Actions actions;
    for (int i = 0; i < micro_batches; ++i) {
      actions.push_back({Action::forward, 0, i});
      actions.push_back({Action::backward, 0, i});
    }
    return actions;
  });
}

PipelineSchedule gpipe_schedule(int ranks, int micro_batches) {
  return build("gpipe", ranks, micro_batches, 1, [&](int) {
    Actions actions;
    for (int i = 0; i < micro_batches; ++i) actions.push_back({Action::forward, 0, i});
    for (int i = 0; i < micro_batches; ++i) actions.push_back({Action::backward, 0, i});
    return actions;
  });
}

PipelineSchedule one_f_one_b_schedule(int ranks, int micro_batches) {
  return build("1f1b", ranks, micro_batches, 1, [&](int rank) {
    Actions actions;
    const int ahead = std::min(ranks - 1 - rank, micro_batches);
    for (int i = 0; i < ahead; ++i) actions.push_back({Action::forward, 0, i});
    for (int i = 0; i < micro_batches; ++i) {
      if (ahead + i < micro_batches) actions.push_back({Action::forward, 0, ahead + i});
      actions.push_back({Action::backward, 0, i});
    }
    return actions;
  });
}

PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int chunks) {
  TRAINING_CHECK(micro_batches % ranks == 0, "whole rounds of micro-batches");
  return build("interleaved", ranks, micro_batches, chunks, [&](int rank) {
    Actions actions;
    const int total = micro_batches * chunks;
    // Twice 1F1B's distance to the last rank: with the next round's forwards between, the gradient
    // of the last chunk is back just in time.
    const int ahead = std::min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, total);
    for (int k = 0; k < ahead; ++k)
      actions.push_back(interleaved_action(Action::forward, k, ranks, chunks));
    for (int k = 0; k < total; ++k) {
      if (ahead + k < total)
        actions.push_back(interleaved_action(Action::forward, ahead + k, ranks, chunks));
      actions.push_back(interleaved_action(Action::backward, k, ranks, chunks));
    }
    return actions;
  });
}

PipelineSchedule zero_bubble_h1_schedule(int ranks, int micro_batches) {
  return build("zb-h1", ranks, micro_batches, 1, [&](int rank) {
    Actions actions;
    const int ahead = std::min(ranks - 1 - rank, micro_batches);
    for (int i = 0; i < ahead; ++i) actions.push_back({Action::forward, 0, i});
    int weights = 0;
    for (int i = 0; i < micro_batches; ++i) {
      if (ahead + i < micro_batches) actions.push_back({Action::forward, 0, ahead + i});
      actions.push_back({Action::backward_input, 0, i});
      if (i >= rank) actions.push_back({Action::backward_weight, 0, weights++});
    }
    while (weights < micro_batches) actions.push_back({Action::backward_weight, 0, weights++});
    return actions;
  });
}

Result<PipelineSchedule> make_schedule(std::string_view name, int ranks, int micro_batches,
                                       int chunks) {
  const std::vector<std::string> names = schedule_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("no pipeline schedule is called '{}'; there are {}", name,
                              fmt::join(names, ", ")));
  }
  if (Status counts = check_counts(name, ranks, micro_batches, chunks); !counts.ok()) return counts;
  if (name == "naive") return naive_schedule(ranks, micro_batches);
  if (name == "gpipe") return gpipe_schedule(ranks, micro_batches);
  if (name == "1f1b") return one_f_one_b_schedule(ranks, micro_batches);
  if (name == "zb-h1") return zero_bubble_h1_schedule(ranks, micro_batches);
  if (micro_batches % ranks != 0) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("schedule 'interleaved' takes micro-batches in rounds of one for "
                              "each rank: {} micro-batches % {} ranks = {}, not 0",
                              micro_batches, ranks, micro_batches % ranks));
  }
  return interleaved_schedule(ranks, micro_batches, chunks);
}

std::vector<std::string> schedule_names() {
  return {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"};
}

}  // namespace tutti::training

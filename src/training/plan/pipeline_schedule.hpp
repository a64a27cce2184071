// pipeline_schedule.hpp: what each rank of a pipeline does, in which order, as plain data. Who
// generates, checks, times, draws or runs a schedule agrees on this.
//
// Knows nothing of messages: they follow from the actions (dependency()). Knows no durations
// either; a PipelineChart is a schedule that somebody put times on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

// One micro-batch's pass through one chunk of the model. A rank has one chunk, or, interleaved,
// several, which are far apart in the model.
struct Action {
  enum Kind : unsigned char {
    forward,
    backward,         // both of the next two, at once
    backward_input,   // the gradient of what came in: the stage before waits for it
    backward_weight,  // the gradient of weights: nobody waits for it
  };

  Kind kind = forward;
  int chunk = 0;
  int micro_batch = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

// Chunk c of rank r is stage c * ranks + r of the model.
struct PipelineSchedule {
  std::string name;
  int chunks_per_rank = 1;
  int micro_batches = 1;
  std::vector<std::vector<Action>> ranks;  // each rank's actions in their order

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stages() const { return rank_count() * chunks_per_rank; }
  int stage_of(int rank, int chunk) const { return chunk * rank_count() + rank; }
  int rank_of_stage(int stage) const { return stage % rank_count(); }

  friend bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;
};

// An action and when it is said to run, in any unit.
struct TimedAction {
  Action action;
  std::int64_t start = 0;
  std::int64_t end = 0;

  friend bool operator==(const TimedAction&, const TimedAction&) = default;
};

// A schedule with times, computed or claimed.
struct PipelineChart {
  std::string name;
  int chunks_per_rank = 1;
  int micro_batches = 1;
  std::vector<std::vector<TimedAction>> ranks;

  int rank_count() const { return static_cast<int>(ranks.size()); }

  // The same without its times; each rank's actions in the order of the lists.
  PipelineSchedule schedule() const;
  std::int64_t makespan() const;  // when the last action ends; 0 without actions

  friend bool operator==(const PipelineChart&, const PipelineChart&) = default;
};

char letter(Action::Kind kind);  // F, B, I or W
inline bool is_forward(Action::Kind kind) { return kind == Action::forward; }
// Whether the action makes the gradient for which the stage before waits.
inline bool makes_input_gradient(Action::Kind kind) {
  return kind == Action::backward || kind == Action::backward_input;
}

// "2F3": stage 2's forward of micro-batch 3.
std::string to_string(const PipelineSchedule& schedule, int rank, const Action& action);

// What of the same micro-batch an action waits for: a forward, or a backward (of input), of a
// stage. The activation or gradient comes as a message if that stage is another rank's.
struct Dependency {
  bool forward = true;
  int stage = 0;
};
// None for the first stage's forward.
std::optional<Dependency> dependency(Action::Kind kind, int stage, int stages);

// One T for each forward and each input gradient of a schedule's stages and micro-batches.
template <typename T>
class DependencyTable {
 public:
  explicit DependencyTable(const PipelineSchedule& schedule)
      : micro_batches_(static_cast<std::size_t>(schedule.micro_batches)),
        values_(2 * static_cast<std::size_t>(schedule.stages()) * micro_batches_) {}

  T& of(const Dependency& what, int micro_batch) { return values_[index(what, micro_batch)]; }
  const T& of(const Dependency& what, int micro_batch) const {
    return values_[index(what, micro_batch)];
  }

 private:
  std::size_t index(const Dependency& what, int micro_batch) const {
    const auto row = 2 * static_cast<std::size_t>(what.stage) + (what.forward ? 0 : 1);
    return row * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }

  std::size_t micro_batches_;
  std::vector<T> values_;
};

// Lets every rank do what it can in its order, with messages that nobody waits to get rid of, and
// calls `visit` once for each action, after what it depends on. Returns how many actions each rank
// did: fewer than it has means that it waits for ever.
// Requires  chunks and micro-batches within their ranges.
std::vector<std::size_t> play(const PipelineSchedule& schedule,
                              const std::function<void(int rank, std::size_t index)>& visit);

}  // namespace tutti::training

// pipeline_runner.cc: see pipeline_runner.hpp.
#include "training/engine/pipeline_runner.hpp"

#include <algorithm>
#include <utility>

namespace tutti::training {
namespace {

// Virtual stages, whose numbers tell which message goes where.
struct VirtualStages {
  const PipelineSchedule& schedule;

  int count() const { return schedule.stages(); }
  int of(int rank, const Action& action) const { return schedule.stage_of(rank, action.chunk); }
  int chunk_of(int stage) const { return stage / schedule.rank_count(); }
};

// The messages that rank `from` sends forward (or backward), as their receiver names them.
std::vector<MessageKey> messages(const PipelineSchedule& schedule, int from, bool forward) {
  const VirtualStages stages{schedule};
  std::vector<MessageKey> order;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(from)]) {
    if (action.kind == Action::backward_weight || is_forward(action.kind) != forward) continue;
    const int to = stages.of(from, action) + (forward ? 1 : -1);
    if (to >= 0 && to < stages.count()) order.push_back({stages.chunk_of(to), action.micro_batch});
  }
  return order;
}

}  // namespace

PipelineRunner::PipelineRunner(int rank, std::vector<Stage*> stages, std::vector<UnitHooks*> hooks,
                               PipelineLinks& links, Context& context, Timeline& timeline)
    : rank_(rank),
      stages_(std::move(stages)),
      hooks_(std::move(hooks)),
      links_(links),
      context_(context),
      timeline_(timeline) {}

Status PipelineRunner::run(const PipelineSchedule& schedule,
                           const std::vector<MicroBatchData>& data, Purpose purpose,
                           std::vector<MicroBatchResult>& results) {
  purpose_ = purpose;
  live_.clear();
  ranks_ = schedule.rank_count();
  results.assign(data.size(), {});
  peak_in_flight_ = 0;
  if (const Status status = expect(schedule); !status.ok()) return status;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank_)]) {
    const auto micro_batch = static_cast<std::size_t>(action.micro_batch);
    const Status status = action.kind == Action::forward
                              ? forward(action, data, results[micro_batch])
                              : backward(action);
    if (!status.ok()) return status;
    peak_in_flight_ = std::max(peak_in_flight_, static_cast<std::int64_t>(live_.size()));
  }
  if (links_.to_next)
    if (const Status status = links_.to_next->finish(timeline_); !status.ok()) return status;
  return links_.to_previous ? links_.to_previous->finish(timeline_) : Status();
}

Status PipelineRunner::expect(const PipelineSchedule& schedule) {
  if (ranks_ == 1) return {};
  const Shape shape{context_.local_rows(), context_.hidden};
  const auto from = [&](int rank, bool forward) {
    return messages(schedule, (rank + ranks_) % ranks_, forward);
  };
  const Status status =
      links_.from_previous->expect(from(rank_ - 1, true), context_.type, shape, context_.arena);
  if (!status.ok()) return status;
  return links_.from_next->expect(from(rank_ + 1, false), context_.type, shape, context_.arena);
}

Status PipelineRunner::forward(const Action& action, const std::vector<MicroBatchData>& data,
                               MicroBatchResult& result) {
  const MessageKey key{action.chunk, action.micro_batch};
  const MicroBatchData& from = data[static_cast<std::size_t>(action.micro_batch)];
  MicroBatch& batch = live_[key];
  batch.tokens = from.tokens;
  batch.targets = from.targets;
  batch.loss_scale = from.loss_scale;
  if (!is_first(action.chunk)) {
    auto x = links_.from_previous->take(key, timeline_);
    if (!x.ok()) return x.status();
    batch.x = std::move(*x);
  }
  context_.balance_loss = 0;
  {
    const Stretch stretch(timeline_, Lane::compute, "forward", action.micro_batch);
    stages_[index(action.chunk)]->forward(batch, *hooks_[index(action.chunk)]);
  }
  result.balance_loss += context_.balance_loss;
  const Tensor y = std::exchange(batch.y, {});
  if (is_last(action.chunk)) result.loss = batch.loss;
  const Status status = is_last(action.chunk) ? Status() : links_.to_next->send(y);
  if (purpose_ == Purpose::evaluate) live_.erase(key);
  return status;
}

Status PipelineRunner::backward(const Action& action) {
  const MessageKey key{action.chunk, action.micro_batch};
  const auto found = live_.find(key);
  TRAINING_CHECK(found != live_.end(), "backward of a micro-batch without its forward");
  MicroBatch& batch = found->second;
  const Backward what = action.kind == Action::backward         ? Backward::both
                        : action.kind == Action::backward_input ? Backward::input
                                                                : Backward::weight;
  if (what != Backward::weight && !is_last(action.chunk)) {
    auto dy = links_.from_next->take(key, timeline_);
    if (!dy.ok()) return dy.status();
    batch.dy = std::move(*dy);
  }
  {
    const char* const names[] = {"backward", "backward of input", "backward of weights"};
    const Stretch stretch(timeline_, Lane::compute, names[static_cast<int>(what)],
                          action.micro_batch);
    stages_[index(action.chunk)]->backward(batch, what, *hooks_[index(action.chunk)]);
  }
  Status status;
  if (what != Backward::weight && !is_first(action.chunk))
    status = links_.to_previous->send(std::exchange(batch.dx, {}));
  if (what != Backward::input) live_.erase(found);
  return status;
}

}  // namespace tutti::training

// data_parallel.hpp: the ranks that compute the same model with different data: when values are
// gathered and let go of, when gradients are reduced, and what is left to add up at the end of a
// step. It listens to the stages as they run (UnitHooks), so that communication is started as early
// as it can be and runs while they compute.
//
// Knows stages by their units and parameters, not what these compute; does not know micro-batches'
// order, the loss or the optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "training/model/stage.hpp"
#include "training/parallel/groups.hpp"
#include "training/parallel/parameter_group.hpp"
#include "training/parallel/reshard.hpp"
#include "training/parallel/timeline.hpp"

namespace tutti::training {

struct DataParallelOptions {
  Zero zero = Zero::replicate;
  bool overlap = true;                   // else every collective is waited for where it is started
  std::int64_t bucket_bytes = 25 << 20;  // of gradients that are reduced as one; not of
                                         // Zero::values, which reduces by units
  Reshard reshard = Reshard::automatic;
  bool keep_last_block = false;  // the last block's values, too, stay from forward to backward
  int prefetch = 1;              // units whose values are fetched before they are needed
};

// Errors  the first failure of a hook stays, see status().
class DataParallel {
 public:
  // `stages` are this rank's, in the order of the model.
  DataParallel(const std::vector<Stage*>& stages, Groups& groups,
               const DataParallelOptions& options, DataType type, Arena& arena, Timeline& timeline);
  ~DataParallel();

  UnitHooks& hooks(std::size_t stage);

  // Calls `f` with each parameter that this rank has a master of, and that master's place.
  using MasterVisitor = std::function<void(ParameterGroup& group, const Member& member)>;
  void visit(const MasterVisitor& f);

  // After all masters have been set or changed: new values go out. They are waited for where they
  // are needed.
  Status publish_values();
  // Blocks until all values that are kept are here, and gathers none.
  Status settle_values();

  // A step has `micro_batches` backward passes of each stage.
  void begin_step(std::int64_t micro_batches);
  // Blocks until every rank has its part of the gradients' sums, those of weights that several
  // tensor-parallel ranks or pipeline stages share included.
  Status finish_gradients();
  void clear_gradients();
  // After a failure: nothing that is on its way is waited for any more.
  void give_up();

  // The Euclidean norm of all gradients, each element counted once, in any order with the same
  // bits. Collective over the world. After finish_gradients().
  Result<double> gradient_norm();

  // Whether this rank, of those of other axes that have the same of a parameter, counts and saves
  // it.
  bool answers_for(const Parameter& parameter) const;

  Status status() const { return status_; }

  // For proofs.
  std::int64_t gathers() const;
  std::int64_t reductions() const;
  std::size_t group_count() const { return groups_.size(); }
  const ParameterGroup& group(std::size_t index) const { return *groups_[index]; }

 private:
  class StageHooks;
  friend class StageHooks;

  void make_groups(std::size_t stage);
  void add_group(std::size_t stage, std::string name, const std::vector<Parameter*>& parameters,
                 std::size_t first_unit, std::size_t last_unit);
  void note(const Status& status);
  void advance();
  Status settle_reductions();
  Status sum_tied();
  Status sum_among(Communicator& among, const std::function<bool(const Parameter&)>& which);

  std::vector<Stage*> stages_;
  Groups& comms_;
  DataParallelOptions options_;
  DataType type_;
  Arena& arena_;
  Timeline& timeline_;
  std::int64_t micro_batches_ = 1;

  std::vector<std::unique_ptr<ParameterGroup>> groups_;
  std::vector<std::unique_ptr<StageHooks>> hooks_;
  std::vector<ParameterGroup*> reducing_;  // in the order in which they were closed
  Status status_;
};

}  // namespace tutti::training

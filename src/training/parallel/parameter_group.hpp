// parameter_group.hpp: parameters whose values are gathered together and whose gradients are
// reduced together, among the ranks that compute with different data. One class does what goes by
// the names of DDP, ZeRO-1, -2, -3, FSDP and HSDP; they differ in what is kept in parts:
//
//   Zero         optimizer   gradients   values    ranks that share the parts
//   replicate    whole       whole       whole     -                                      (DDP)
//   optimizer    parts       whole       whole     shard                                  (ZeRO-1)
//   gradients    parts       parts       whole     shard                                  (ZeRO-2)
//   values       parts       parts       parts     shard            (ZeRO-3, FSDP; HSDP:
//   replicated)
//
// Every parameter is cut into equal parts of consecutive elements, one for each rank of the shard
// group, the last ones shorter or empty. Rank r's part of all parameters, one after the other, is
// its *block*; blocks have one length on all ranks, so that one collective moves the group: an
// all_gather for values, a reduce_scatter for gradients. Gradients that have been scattered are
// then added among the replicas by an all_reduce of the block.
//
// Sums go along trees (see GradientTree), so that with numbers of ranks that are powers of two all
// of these add the same numbers in the same order.
//
// Source  Rajbhandari et al.: ZeRO (2020); Zhao et al.: PyTorch FSDP (2023).
//
// Does not know when a module runs; data_parallel.hpp does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/modules/parameter.hpp"
#include "training/optim/gradient_tree.hpp"
#include "training/parallel/timeline.hpp"
#include "training/tensor/tensor.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

enum class Zero : unsigned char { replicate = 0, optimizer = 1, gradients = 2, values = 3 };

// Among whom a group's parameters are shared. Null or of one rank: nobody.
struct DataGroups {
  Communicator* all = nullptr;      // every rank with other data: replicas times shards
  Communicator* shard = nullptr;    // who share the parts
  Communicator* replica = nullptr;  // who have the same part
};

// Where one parameter lies in its group. Units: elements.
struct Member {
  Parameter* parameter = nullptr;
  std::int64_t count = 0;         // of this rank's whole parameter
  std::int64_t quota = 0;         // of a part: count / ranks, rounded up
  std::int64_t begin = 0;         // of this rank's part in the parameter
  std::int64_t length = 0;        // of this rank's part: at most quota
  std::int64_t block_offset = 0;  // of the part in a block
  std::int64_t flat_offset = 0;   // of the parameter among all of the group
};

class ParameterGroup {
 public:
  // Lifetime  of the parameters, communicators, arena and timeline: longer.
  ParameterGroup(std::string name, const std::vector<Parameter*>& parameters, Zero zero,
                 DataGroups groups, DataType type, Arena& arena, Timeline& timeline);

  const std::string& name() const { return name_; }
  const std::vector<Member>& members() const { return members_; }
  std::int64_t count() const { return flat_count_; }         // of all parameters here
  std::int64_t block_count() const { return block_count_; }  // of one rank's part, padding included

  // ---- Values ----

  // This rank's part of a member, of wide_type(): what the optimizer changes. Where values are of a
  // narrower type, it is a copy that keeps the bits they lack.
  Tensor master(const Member& member) const;

  // After masters have changed: rounds them into values, and sends them to the others.
  // start_values() does not block; Blocking  values_ready(), until they are here.
  Status start_values();
  Status values_ready();

  // Of Zero::values: whether values are here or on their way, and letting go of them.
  bool has_values() const { return has_values_; }
  void release_values();
  bool keeps_values() const { return zero_ != Zero::values; }

  // ---- Gradients of one step ----

  // Of the next micro-batch: parameters get zeros to add to.
  void open_gradients();
  // Takes them away. `last`: of the step; the reduction starts.
  Status close_gradients(bool last);
  // Moves a started reduction on without blocking.
  Status advance();
  // Whether all that was started among the shard group is done. Groups that share communicators
  // start their all_reduce among the replicas in one order: only after those before are scattered.
  bool is_scattered() const { return !scattering_; }
  // Blocks until what was started among the shard group is done, and starts what follows it.
  Status settle_scatter();
  // Blocks until the step's reduction is done.
  Status finish_gradients();
  // This rank's part of the step's sum; after finish_gradients(), until clear_gradients().
  Tensor gradient(const Member& member) const;
  void clear_gradients();

  // After a failure: what is on its way is not waited for, also not by the destructor.
  void give_up();

  // Of those that have the same part of the sum: which one this is, and how many they are.
  struct Holder {
    int number, count;
  };
  Holder holder() const;

  // For proofs.
  std::int64_t gathers() const { return gathers_; }
  std::int64_t reductions() const { return reductions_; }

 private:
  struct Pending {
    Work work;
    Tensor input, output;
    double begin_us = 0;
  };

  void lay_out(const std::vector<Parameter*>& parameters);
  void make_storage();
  void point_at_values();
  void stand_in();  // for values that failed to come: modules run on until somebody asks status()
  Tensor block_to_send() const;
  Tensor packed(const Tensor& flat) const;
  Status start_scatter(const Tensor& flat, Tensor block);
  Status start_reduction(Communicator* among, const Tensor& sum);
  Status wait(std::optional<Pending>& pending, const char* what);

  std::string name_;
  Zero zero_;
  DataGroups groups_;
  DataType type_;
  Arena& arena_;
  Timeline& timeline_;
  int shard_size_ = 1, shard_rank_ = 0;
  std::vector<Member> members_;
  std::int64_t flat_count_ = 0, block_count_ = 0;
  std::int64_t value_flat_count_ = 0, value_block_count_ = 0;  // without those that are tied

  Tensor values_;   // all parameters, one after the other; empty while released
  Tensor masters_;  // a block; empty where values_ are the masters
  bool has_values_ = false;
  std::optional<Pending> gathering_;

  std::optional<GradientTree> tree_;
  Tensor open_;  // of the micro-batch whose backward runs
  bool last_closed_ = false;
  std::optional<Pending> scattering_, reducing_;
  Tensor sum_;  // of the step, when it is known

  std::int64_t gathers_ = 0, reductions_ = 0;
};

}  // namespace tutti::training

// data_parallel.cc: see data_parallel.hpp. Groups' collectives are started in the order in which
// stages run, which is the same on all ranks of a communicator.
#include "training/parallel/data_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "training/optim/exact_sum.hpp"
#include "training/tensor/convert.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {

// Where the groups of one stage begin and end among its units.
class DataParallel::StageHooks final : public UnitHooks {
 public:
  StageHooks(DataParallel& owner, Stage& stage)
      : owner_(owner), stage_(stage), units_(stage.units()) {}

  struct Entry {
    ParameterGroup* group;
    std::size_t first_unit, last_unit;
    std::int64_t closed;  // micro-batches of this step
  };

  void add(ParameterGroup* group, std::size_t first_unit, std::size_t last_unit) {
    entries_.push_back({group, first_unit, last_unit, 0});
  }
  void begin_step() {
    for (Entry& entry : entries_) entry.closed = 0;
  }

  void before_forward(std::size_t unit) override {
    need(unit);
    for (std::size_t ahead = 1; ahead <= prefetch() && unit + ahead < units_; ++ahead)
      fetch(unit + ahead);
    begin_us_ = Timeline::now_us();
  }

  void after_forward(std::size_t unit) override {
    computed("forward ", unit);
    for (const Entry& entry : entries_)
      if (entry.last_unit == unit && !stays(entry)) entry.group->release_values();
    owner_.advance();
  }

  void before_recompute(std::size_t unit) override { need(unit); }

  void before_backward_input(std::size_t unit) override {
    need(unit);
    for (std::size_t ahead = 1; ahead <= prefetch() && ahead <= unit; ++ahead) fetch(unit - ahead);
    begin_us_ = Timeline::now_us();
  }

  void after_backward_input(std::size_t unit) override {
    computed("backward of input ", unit);
    for (const Entry& entry : entries_)
      if (entry.first_unit == unit && owner_.options_.reshard != Reshard::never)
        entry.group->release_values();
    owner_.advance();
  }

  void before_backward_weight(std::size_t unit) override {
    for (const Entry& entry : entries_)
      if (entry.last_unit == unit) entry.group->open_gradients();
    begin_us_ = Timeline::now_us();
  }

  void after_backward_weight(std::size_t unit) override {
    computed("backward of weights ", unit);
    for (Entry& entry : entries_)
      if (entry.first_unit == unit) close(entry);
    owner_.advance();
  }

 private:
  void computed(const char* what, std::size_t unit) {
    Timeline& timeline = owner_.timeline_;
    if (timeline.is_recording())
      timeline.add(Lane::compute, what + stage_.unit_name(unit), begin_us_, Timeline::now_us());
  }

  std::size_t prefetch() const {
    return owner_.options_.overlap ? static_cast<std::size_t>(owner_.options_.prefetch) : 0;
  }

  // The values of what this unit computes with, on their way or here.
  void fetch(std::size_t unit) {
    for (const Entry& entry : entries_)
      if (entry.first_unit <= unit && unit <= entry.last_unit && !entry.group->has_values())
        owner_.note(entry.group->start_values());
  }

  void need(std::size_t unit) {
    fetch(unit);
    for (const Entry& entry : entries_)
      if (entry.first_unit <= unit && unit <= entry.last_unit)
        owner_.note(entry.group->values_ready());
  }

  // Whether values stay from forward to backward.
  bool stays(const Entry& entry) const {
    const DataParallelOptions& options = owner_.options_;
    if (options.reshard == Reshard::never) return true;
    const std::size_t last = units_ - 1;
    const bool used_last = entry.last_unit == last;
    if (used_last) return options.reshard == Reshard::automatic || options.keep_last_block;
    return options.keep_last_block && entry.first_unit == entry.last_unit &&
           entry.last_unit + 1 == last && stage_.layers().has_head;
  }

  void close(Entry& entry) {
    const bool last = ++entry.closed == owner_.micro_batches_;
    owner_.note(entry.group->close_gradients(last));
    auto& reducing = owner_.reducing_;
    if (std::find(reducing.begin(), reducing.end(), entry.group) == reducing.end())
      reducing.push_back(entry.group);
    if (!owner_.options_.overlap) owner_.note(entry.group->finish_gradients());
  }

  friend class DataParallel;

  DataParallel& owner_;
  Stage& stage_;
  std::size_t units_;
  double begin_us_ = 0;  // of what computes
  std::vector<Entry> entries_;
};

DataParallel::DataParallel(const std::vector<Stage*>& stages, Groups& groups,
                           const DataParallelOptions& options, DataType type, Arena& arena,
                           Timeline& timeline)
    : stages_(stages),
      comms_(groups),
      options_(options),
      type_(type),
      arena_(arena),
      timeline_(timeline) {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    hooks_.push_back(std::make_unique<StageHooks>(*this, *stages_[stage]));
    make_groups(stage);
  }
}

DataParallel::~DataParallel() = default;

UnitHooks& DataParallel::hooks(std::size_t stage) { return *hooks_[stage]; }

// ---- Which parameters go together --------------------------------------------------------------

void DataParallel::add_group(std::size_t stage, std::string name,
                             const std::vector<Parameter*>& parameters, std::size_t first_unit,
                             std::size_t last_unit) {
  if (parameters.empty()) return;
  const DataGroups among =
      parameters.front()->expert
          ? DataGroups{&comms_.expert_data, &comms_.expert_shard, &comms_.expert_replica}
          : DataGroups{&comms_.data, &comms_.shard, &comms_.replica};
  groups_.push_back(std::make_unique<ParameterGroup>(std::move(name), parameters, options_.zero,
                                                     among, type_, arena_, timeline_));
  hooks_[stage]->add(groups_.back().get(), first_unit, last_unit);
}

// Zero::values: a group for each block, and one of the embedding and the head, which are small
// beside blocks and needed first and last. Else buckets, filled in the order in which gradients
// become known: from the last unit to the first.
void DataParallel::make_groups(std::size_t stage) {
  Stage& of = *stages_[stage];
  const bool by_units = options_.zero == Zero::values;
  const std::int64_t cap = options_.bucket_bytes;
  struct Open {
    std::vector<Parameter*> parameters;
    std::size_t first_unit = 0, last_unit = 0;
    std::int64_t bytes = 0;
  };
  Open root, bucket[2];  // of experts: the second
  int number = 0;
  const auto finish = [&](Open& open, const std::string& name) {
    add_group(stage, name, open.parameters, open.first_unit, open.last_unit);
    open = {};
  };
  const auto put = [&](Open& open, Parameter& parameter, std::size_t unit) {
    if (open.parameters.empty()) open.last_unit = unit;
    open.first_unit = unit;
    open.parameters.push_back(&parameter);
    open.bytes += parameter.count() * static_cast<std::int64_t>(size_of(wide_type(type_)));
  };
  for (std::size_t unit = of.units(); unit-- > 0;) {
    const std::string name = of.unit_name(unit);
    const bool is_block = of.is_block(unit);
    std::vector<Parameter*> parameters;
    of.visit(unit, [&](Parameter& parameter) { parameters.push_back(&parameter); });
    std::reverse(parameters.begin(), parameters.end());
    for (Parameter* parameter : parameters) {
      Open& open = by_units && !is_block ? root : bucket[parameter->expert ? 1 : 0];
      put(open, *parameter, unit);
      if (!by_units && open.bytes >= cap) finish(open, "bucket " + std::to_string(number++));
    }
    if (by_units && is_block) {
      finish(bucket[0], name);
      finish(bucket[1], name + " experts");
    }
  }
  finish(bucket[0], "bucket " + std::to_string(number));
  finish(bucket[1], "bucket of experts " + std::to_string(number));
  finish(root, "embedding and head");
}

void DataParallel::visit(const MasterVisitor& f) {
  for (const auto& group : groups_)
    for (const Member& member : group->members())
      if (!member.parameter->tied_to) f(*group, member);
}

// ---- A step ------------------------------------------------------------------------------------

void DataParallel::note(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
}

void DataParallel::begin_step(std::int64_t micro_batches) {
  micro_batches_ = micro_batches;
  for (const auto& hooks : hooks_) hooks->begin_step();
}

void DataParallel::advance() {
  for (ParameterGroup* group : reducing_) {
    note(group->advance());
    if (!group->is_scattered()) return;
  }
}

Status DataParallel::publish_values() {
  for (const auto& group : groups_) {
    group->release_values();
    if (!group->keeps_values()) continue;
    if (const Status status = group->start_values(); !status.ok()) return status;
  }
  return options_.overlap ? Status() : settle_values();
}

Status DataParallel::settle_values() {
  for (const auto& group : groups_)
    if (const Status status = group->values_ready(); !status.ok()) return status;
  return {};
}

Status DataParallel::settle_reductions() {
  for (ParameterGroup* group : reducing_)
    if (const Status status = group->settle_scatter(); !status.ok()) return status;
  for (ParameterGroup* group : reducing_)
    if (const Status status = group->finish_gradients(); !status.ok()) return status;
  reducing_.clear();
  return {};
}

Status DataParallel::finish_gradients() {
  if (!status_.ok()) return status_;
  Status status = settle_reductions();
  if (status.ok() && comms_.tp.size() > 1)
    status = sum_among(comms_.tp, [](const Parameter& p) {
      return p.sharing == Sharing::partial && p.copies == 1;
    });
  if (status.ok() && comms_.copies.size() > 1)
    status = sum_among(comms_.copies, [](const Parameter& p) { return p.copies > 1; });
  if (status.ok()) status = sum_tied();
  note(status);
  return status_;
}

// The gradients of these parameters, summed among ranks that hold the same of them.
Status DataParallel::sum_among(Communicator& among,
                               const std::function<bool(const Parameter&)>& which) {
  std::vector<Tensor> parts;
  std::int64_t count = 0;
  for (const auto& group : groups_)
    for (const Member& member : group->members())
      if (which(*member.parameter)) {
        parts.push_back(group->gradient(member));
        count += member.length;
      }
  if (count == 0) return {};
  const Tensor all(arena_, MemoryKind::communication, wide_type(type_), {count});
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    convert(part, all.elements(at, part.count()));
    at += part.count();
  }
  const Stretch stretch(timeline_, Lane::communication, "all_reduce of shared weights");
  const Status status = among.all_reduce(all.data(), all.data(), static_cast<std::size_t>(count),
                                         all.type(), ReduceOp::sum);
  at = 0;
  for (const Tensor& part : parts) {
    convert(all.elements(at, part.count()), part);
    at += part.count();
  }
  return status.with_context("gradients of shared weights");
}

// A weight that the embedding and the head compute with has a gradient of each; their sum is of two
// terms, so that it is the same wherever they are.
Status DataParallel::sum_tied() {
  std::map<const Parameter*, Tensor> owned;
  for (const auto& group : groups_)
    for (const Member& member : group->members()) owned[member.parameter] = group->gradient(member);
  for (const auto& [parameter, gradient] : owned)
    if (parameter->tied_to) accumulate(owned.at(parameter->tied_to), gradient);
  if (!comms_.ends) return {};
  return sum_among(*comms_.ends, [](const Parameter& p) { return p.on_two_stages; });
}

void DataParallel::clear_gradients() {
  for (const auto& group : groups_) group->clear_gradients();
}

void DataParallel::give_up() {
  for (const auto& group : groups_) group->give_up();
}

bool DataParallel::answers_for(const Parameter& parameter) const {
  if (parameter.tied_to || parameter.duplicate) return false;
  const int tp_rank = comms_.tp.rank();
  if (parameter.copies > 1) return tp_rank % parameter.copies == 0;
  return parameter.sharing == Sharing::split || tp_rank == 0;
}

Result<double> DataParallel::gradient_norm() {
  ExactSum sum;
  for (const auto& group : groups_)
    for (const Member& member : group->members()) {
      if (!answers_for(*member.parameter)) continue;
      const ParameterGroup::Holder holder = group->holder();
      const std::int64_t begin = member.length * holder.number / holder.count;
      const std::int64_t end = member.length * (holder.number + 1) / holder.count;
      const Tensor mine = group->gradient(member).elements(begin, end - begin);
      if (mine.type() == DataType::float64)
        sum.add_squares(mine.span<const double>());
      else
        sum.add_squares(mine.span<const float>());
    }
  sum.normalise();
  const Status status = comms_.world->all_reduce(sum.limbs(), ReduceOp::sum);
  if (!status.ok()) return status.with_context("norm of the gradients");
  return std::sqrt(sum.value());
}

std::int64_t DataParallel::gathers() const {
  std::int64_t count = 0;
  for (const auto& group : groups_) count += group->gathers();
  return count;
}

std::int64_t DataParallel::reductions() const {
  std::int64_t count = 0;
  for (const auto& group : groups_) count += group->reductions();
  return count;
}

}  // namespace tutti::training

// parameter_group.cc: see parameter_group.hpp.
#include "training/parallel/parameter_group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "training/tensor/convert.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

bool alone(const Communicator* group) { return group == nullptr || group->size() == 1; }

// Elements [begin, begin + length) of `from` into `to` at `at`.
void copy_elements(const Tensor& from, std::int64_t begin, std::int64_t length, const Tensor& to,
                   std::int64_t at) {
  if (length > 0) convert(from.elements(begin, length), to.elements(at, length));
}

}  // namespace

ParameterGroup::ParameterGroup(std::string name, const std::vector<Parameter*>& parameters,
                               Zero zero, DataGroups groups, DataType type, Arena& arena,
                               Timeline& timeline)
    : name_(std::move(name)),
      zero_(alone(groups.shard) ? Zero::replicate : zero),
      groups_(groups),
      type_(type),
      arena_(arena),
      timeline_(timeline) {
  if (zero_ != Zero::replicate) {
    shard_size_ = groups_.shard->size();
    shard_rank_ = groups_.shard->rank();
  }
  lay_out(parameters);
  make_storage();
}

// Tied parameters come last: they have gradients, but compute with another's value.
void ParameterGroup::lay_out(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> order = parameters;
  std::stable_partition(order.begin(), order.end(), [](Parameter* p) { return !p->tied_to; });
  for (Parameter* parameter : order) {
    Member member;
    member.parameter = parameter;
    member.count = parameter->count();
    member.quota = (member.count + shard_size_ - 1) / shard_size_;
    member.begin = std::min(member.quota * shard_rank_, member.count);
    member.length = std::min(member.quota, member.count - member.begin);
    member.block_offset = block_count_;
    member.flat_offset = flat_count_;
    block_count_ += member.quota;
    flat_count_ += member.count;
    if (!parameter->tied_to) {
      value_block_count_ = block_count_;
      value_flat_count_ = flat_count_;
    }
    members_.push_back(member);
  }
}

void ParameterGroup::make_storage() {
  const DataType wide = wide_type(type_);
  const bool keeps = keeps_values();
  if (!keeps || type_ != wide) {
    const MemoryKind kind = type_ == wide ? MemoryKind::parameter : MemoryKind::optimizer;
    masters_ = Tensor::zeros(arena_, kind, wide, {value_block_count_});
  }
  if (keeps) {
    values_ = Tensor::zeros(arena_, MemoryKind::parameter, type_, {value_flat_count_});
    point_at_values();
    has_values_ = true;
  }
  const bool sums_blocks = zero_ >= Zero::gradients;
  tree_.emplace(arena_, wide, Shape{sums_blocks ? block_count_ : flat_count_});
}

void ParameterGroup::point_at_values() {
  for (const Member& member : members_) {
    Parameter& p = *member.parameter;
    if (p.tied_to) continue;
    p.value = values_.empty()
                  ? Tensor()
                  : values_.elements(member.flat_offset, member.count).reshaped(p.shape());
  }
}

// ---- Values ------------------------------------------------------------------------------------

Tensor ParameterGroup::master(const Member& member) const {
  if (member.parameter->tied_to) return {};
  return masters_.empty() ? values_.elements(member.flat_offset + member.begin, member.length)
                          : masters_.elements(member.block_offset, member.length);
}

// This rank's part of all values, as it travels.
Tensor ParameterGroup::block_to_send() const {
  if (!masters_.empty() && type_ == masters_.type()) return masters_;
  Tensor block = Tensor::zeros(arena_, MemoryKind::communication, type_, {value_block_count_});
  for (const Member& member : members_)
    if (!member.parameter->tied_to)
      copy_elements(master(member), 0, member.length, block, member.block_offset);
  return block;
}

Status ParameterGroup::start_values() {
  if (shard_size_ == 1) {
    if (!masters_.empty()) convert(masters_, values_);
    return {};
  }
  if (gathering_ || value_block_count_ == 0) return {};
  Pending pending;
  pending.input = block_to_send();
  pending.output =
      Tensor(arena_, MemoryKind::communication, type_, {value_block_count_ * shard_size_});
  pending.begin_us = Timeline::now_us();
  auto work = groups_.shard->all_gather_async(pending.input.data(), pending.output.data(),
                                              static_cast<std::size_t>(value_block_count_), type_);
  if (!work.ok()) {
    stand_in();
    return work.status().with_context("values of " + name_);
  }
  pending.work = std::move(*work);
  gathering_ = std::move(pending);
  has_values_ = true;
  ++gathers_;
  return {};
}

Status ParameterGroup::values_ready() {
  if (!gathering_) return {};
  const Tensor whole = gathering_->output;
  if (const Status status = wait(gathering_, "gather"); !status.ok()) {
    stand_in();
    return status;
  }
  if (values_.empty()) values_ = Tensor(arena_, MemoryKind::parameter, type_, {value_flat_count_});
  for (const Member& member : members_)
    for (int rank = 0; rank < shard_size_ && !member.parameter->tied_to; ++rank) {
      const std::int64_t begin = std::min(member.quota * rank, member.count);
      copy_elements(whole, rank * value_block_count_ + member.block_offset,
                    std::min(member.quota, member.count - begin), values_,
                    member.flat_offset + begin);
    }
  point_at_values();
  return {};
}

void ParameterGroup::stand_in() {
  if (values_.empty())
    values_ = Tensor::zeros(arena_, MemoryKind::parameter, type_, {value_flat_count_});
  has_values_ = true;
  point_at_values();
}

void ParameterGroup::release_values() {
  if (keeps_values()) return;
  TRAINING_CHECK(!gathering_, "values that are on their way are not let go of");
  values_ = {};
  has_values_ = false;
  point_at_values();
}

// ---- Gradients ---------------------------------------------------------------------------------

void ParameterGroup::open_gradients() {
  TRAINING_CHECK(open_.empty(), "gradients of one micro-batch at a time");
  open_ = zero_ >= Zero::gradients
              ? Tensor::zeros(arena_, MemoryKind::gradient, wide_type(type_), {flat_count_})
              : tree_->next();
  for (const Member& member : members_)
    member.parameter->gradient =
        open_.elements(member.flat_offset, member.count).reshaped(member.parameter->shape());
}

Status ParameterGroup::close_gradients(bool last) {
  for (const Member& member : members_) member.parameter->gradient = {};
  Tensor flat = std::exchange(open_, {});
  if (zero_ >= Zero::gradients) {
    // That of the micro-batch before, which is not the last.
    if (const Status status = settle_scatter(); !status.ok()) return status;
    last_closed_ = last;
    return start_scatter(flat, tree_->next());
  }
  tree_->push(std::move(flat));
  if (!last) return {};
  const Tensor sum = tree_->finish(tree_->pushed());
  if (zero_ == Zero::optimizer)
    return start_scatter(sum, Tensor(arena_, MemoryKind::gradient, sum.type(), {block_count_}));
  return start_reduction(groups_.all, sum);
}

// The gradients of all parameters as blocks, one for each rank of the shard group.
Tensor ParameterGroup::packed(const Tensor& flat) const {
  Tensor blocks =
      Tensor::zeros(arena_, MemoryKind::communication, flat.type(), {block_count_ * shard_size_});
  for (const Member& member : members_)
    for (int rank = 0; rank < shard_size_; ++rank) {
      const std::int64_t begin = std::min(member.quota * rank, member.count);
      copy_elements(flat, member.flat_offset + begin, std::min(member.quota, member.count - begin),
                    blocks, rank * block_count_ + member.block_offset);
    }
  return blocks;
}

Status ParameterGroup::start_scatter(const Tensor& flat, Tensor block) {
  Pending pending;
  pending.input = packed(flat);
  pending.output = std::move(block);
  pending.begin_us = Timeline::now_us();
  auto work = groups_.shard->reduce_scatter_async(pending.input.data(), pending.output.data(),
                                                  static_cast<std::size_t>(block_count_),
                                                  pending.input.type(), ReduceOp::sum);
  if (!work.ok()) return work.status().with_context("gradients of " + name_);
  pending.work = std::move(*work);
  scattering_ = std::move(pending);
  ++reductions_;
  return {};
}

// Waits for a scatter that is on its way, and does what follows it.
Status ParameterGroup::settle_scatter() {
  if (!scattering_) return {};
  Tensor block = scattering_->output;
  if (const Status status = wait(scattering_, "reduce_scatter"); !status.ok()) return status;
  if (zero_ == Zero::optimizer) return start_reduction(groups_.replica, block);
  tree_->push(std::move(block));
  return last_closed_ ? start_reduction(groups_.replica, tree_->finish(tree_->pushed())) : Status();
}

Status ParameterGroup::start_reduction(Communicator* among, const Tensor& sum) {
  sum_ = sum;
  if (alone(among) || sum.count() == 0) return {};
  Pending pending;
  pending.input = pending.output = sum;
  pending.begin_us = Timeline::now_us();
  auto work = among->all_reduce_async(sum.data(), sum.data(), static_cast<std::size_t>(sum.count()),
                                      sum.type(), ReduceOp::sum);
  if (!work.ok()) return work.status().with_context("gradients of " + name_);
  pending.work = std::move(*work);
  reducing_ = std::move(pending);
  ++reductions_;
  return {};
}

Status ParameterGroup::advance() {
  if (scattering_ && scattering_->work.test())
    if (const Status status = settle_scatter(); !status.ok()) return status;
  if (reducing_ && reducing_->work.test()) return wait(reducing_, "all_reduce");
  return {};
}

Status ParameterGroup::finish_gradients() {
  if (const Status status = settle_scatter(); !status.ok()) return status;
  return reducing_ ? wait(reducing_, "all_reduce") : Status();
}

Tensor ParameterGroup::gradient(const Member& member) const {
  TRAINING_CHECK(!sum_.empty() && !reducing_, "gradients asked for before they are known");
  return sum_.elements(member.block_offset, member.length);
}

void ParameterGroup::clear_gradients() { sum_ = {}; }

void ParameterGroup::give_up() {
  const bool among_shards =
      (gathering_ && !gathering_->work.test()) || (scattering_ && !scattering_->work.test());
  if (among_shards) groups_.shard->abort();
  if (reducing_ && !reducing_->work.test())
    (shard_size_ == 1 ? groups_.all : groups_.replica)->abort();
}

ParameterGroup::Holder ParameterGroup::holder() const {
  const Communicator* same = shard_size_ == 1 ? groups_.all : groups_.replica;
  return same == nullptr ? Holder{0, 1} : Holder{same->rank(), same->size()};
}

Status ParameterGroup::wait(std::optional<Pending>& pending, const char* what) {
  const double begin_us = Timeline::now_us();
  const Status status = pending->work.wait();
  const double end_us = Timeline::now_us();
  timeline_.add_exposed(begin_us, end_us);
  if (timeline_.is_recording())
    timeline_.add(Lane::communication, what + (" " + name_), pending->begin_us, end_us);
  pending.reset();
  return status.with_context(what + (" of " + name_));
}

}  // namespace tutti::training

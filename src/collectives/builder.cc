// The telling language: turns calls into steps, and tells an algorithm for every rank.
#include "collectives/builder.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace tutti::collectives {
namespace {

// One rank has nobody to talk to, whatever the algorithm.
void tell_alone(Builder& b) {
  const int chunks = block_count(b.shape(), Buffer::output) * b.shape().chunks;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (is_reduction(b.shape().collective))
      b.finish({Builder::input(chunk)}, {Builder::output(chunk)});
    else
      b.copy(Builder::input(chunk), {Builder::output(chunk)});
  }
}

}  // namespace

Builder::Builder(const ScheduleShape& shape, Rank rank) : shape_(shape), rank_(rank) {
  TUTTI_ASSERT(rank >= 0 && rank < shape.ranks, "the rank is one of the schedule's");
}

Group Builder::world() const { return Group{0, 1, shape_.ranks, me(), rank_}; }

Group Builder::subgroup(int base, int stride, int size) const {
  const int number = (rank_ - base) / stride;
  TUTTI_ASSERT(base + stride * number == rank_ && number >= 0 && number < size,
               "a rank tells only of groups that it is in");
  return Group{base, stride, size, number, number};
}

Operand Builder::chunks(Buffer buffer, AffineIndex first, int count) {
  return Operand{Operand::Kind::chunks, buffer, first, count};
}

Operand Builder::message(AffineIndex peer, Travel travel) {
  return Operand{Operand::Kind::message, Buffer::input, peer, 1, travel};
}

void Builder::send(AffineIndex peer, const Operand& source) { copy(source, {to(peer)}); }

void Builder::recv(AffineIndex peer, const Operand& destination) {
  copy(from(peer), {destination});
}

void Builder::copy(const Operand& source, std::vector<Operand> destinations) {
  add(Step{StepKind::copy, false, {source}, std::move(destinations)});
}

void Builder::reduce(std::vector<Operand> sources, std::vector<Operand> destinations) {
  add(Step{StepKind::reduce, false, std::move(sources), std::move(destinations)});
}

void Builder::finish(std::vector<Operand> sources, std::vector<Operand> destinations) {
  add(Step{StepKind::reduce, true, std::move(sources), std::move(destinations)});
}

void Builder::add(Step step) {
  TUTTI_ASSERT(!step.sources.empty() && !step.destinations.empty(), "a step moves something");
  // A message has no length of its own; it moves what the memory operands say.
  int count = 0;
  for (const Operand& operand : step.sources)
    if (operand.kind == Operand::Kind::chunks) count = operand.count;
  for (const Operand& operand : step.destinations)
    if (operand.kind == Operand::Kind::chunks) count = operand.count;
  TUTTI_ASSERT(count > 0, "a step has an operand in memory");
  for (Operand& operand : step.sources)
    if (operand.kind == Operand::Kind::message) operand.count = count;
  for (Operand& operand : step.destinations)
    if (operand.kind == Operand::Kind::message) operand.count = count;
  if (in_loop_ || (!program_.parts.empty() && program_.parts.back().times == 1))
    program_.parts.back().body.push_back(std::move(step));
  else
    program_.parts.push_back(Repeat{1, {std::move(step)}});
}

void Builder::repeat(int times, const std::function<void(AffineIndex)>& body) {
  TUTTI_ASSERT(!in_loop_, "loops do not nest");
  if (times <= 0) return;
  in_loop_ = true;
  program_.parts.push_back(Repeat{times, {}});
  body(AffineIndex::of_loop());
  in_loop_ = false;
  // A loop of once is straight code; a loop that follows must not be appended to.
  if (program_.parts.back().body.empty()) program_.parts.pop_back();
}

int GroupSizes::outermost() const {
  int ranks = 1;
  for (const int size : sizes_) ranks *= size;
  return ranks;
}

std::string GroupSizes::text() const {
  std::string text;
  for (const int size : sizes_) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

Schedule build(const Algorithm& algorithm, const ScheduleShape& shape, const GroupSizes& groups) {
  Schedule schedule;
  schedule.algorithm = algorithm.name;
  schedule.shape = shape;
  for (Rank rank = 0; rank < shape.ranks; ++rank) {
    Builder builder(shape, rank);
    if (shape.ranks == 1)
      tell_alone(builder);
    else
      algorithm.tell(builder, groups);
    Program program = builder.take();
    // Regular algorithms say the same for every rank: then this finds the first program at once.
    const auto known = std::find(schedule.programs.begin(), schedule.programs.end(), program);
    schedule.program_of_rank.push_back(static_cast<int>(known - schedule.programs.begin()));
    if (known == schedule.programs.end()) schedule.programs.push_back(std::move(program));
  }
  return schedule;
}

Result<Schedule> build(const Algorithm& algorithm, int ranks, Rank root, const GroupSizes& groups) {
  Result<ScheduleShape> shape = algorithm.shape(ranks, root, groups);
  if (!shape.ok()) return shape.status();
  return build(algorithm, *shape, groups);
}

}  // namespace tutti::collectives

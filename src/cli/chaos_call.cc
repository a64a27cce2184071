// Draws calls, lowers their schedules, keeps their buffers.
#include "cli/chaos_call.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/geometry.hpp"
#include "collectives/lowering.hpp"
#include "runtime/varied.hpp"

namespace tutti::cli {
namespace {

using collectives::LoweredProgram;
using collectives::Plan;

constexpr double kUntouched = 99;
constexpr double kReused = 111;
constexpr std::size_t kSlices = 24;  // at most about so many in a call of small slices
constexpr int kSomeRanks = 16;       // beyond, calls of less data
constexpr int kManyRanks = 64;       // from here on, of few messages
constexpr int kVeryManyRanks = 256;

std::size_t at(int value) { return static_cast<std::size_t>(value); }

Plans make_plans(const collectives::Algorithm& algorithm, int group, const Schedule& schedule,
                 const collectives::PlanSettings& settings, bool ordered = false,
                 collectives::Copies copies = collectives::Copies::pushed) {
  const std::uint64_t hash =
      collectives::plan_hash(algorithm.name, group, schedule.shape, settings);
  Plans plans;
  for (LoweredProgram& lowered : collectives::lower_all(schedule, copies)) {
    LoweredProgram program =
        ordered ? collectives::in_rank_order(std::move(lowered)) : std::move(lowered);
    plans.push_back(
        std::make_shared<Plan>(Plan{std::string(algorithm.name), settings,
                                    std::make_shared<LoweredProgram>(std::move(program)), hash}));
  }
  return plans;
}

// Mostly a third of a frame or more. Now and then so small that the call has more slices than the
// executor's window holds, but not hundreds of them.
std::size_t draw_slice_bytes(Dice& dice, const PlannedCall& planned, const ScheduleShape& shape,
                             std::size_t frame) {
  const std::size_t element = size_of(planned.call.type);
  const std::size_t least = at(shape.message_chunks_max) * element;
  if (!dice.one_in(8)) return std::max(least, frame / (1 + dice.below(3)));
  std::size_t bytes = least;
  while (bytes < frame && collectives::slices_needed(shape, planned.call.count, element,
                                                     planned.settings.channels, bytes) > kSlices)
    bytes *= 2;
  return std::min(bytes, frame);
}

bool suits(const collectives::Algorithm& algorithm, int ranks) {
  if (algorithm.collective == Collective::send_recv && ranks == 1) return false;
  if (ranks < kManyRanks) return true;
  // One message between any two ranks, or for the block of each, would be millions.
  const std::string_view name = algorithm.name;
  if (ranks >= kVeryManyRanks && algorithm.grouped && !has_root(algorithm.collective)) return false;
  return name.find("ring") == name.npos && name.find("direct") == name.npos &&
         name.find("pairwise") == name.npos && algorithm.collective != Collective::all_to_all;
}

// Ranks of a node, which talk directly; the nodes are a ring, which must not be long.
int draw_group(Dice& dice, int ranks) {
  if (ranks < kManyRanks) return dice.between(2, 4);
  int group = 4;
  while (ranks / group > 4 * group) group *= 2;
  return group << dice.below(2);
}

// Another type of the same size.
DataType another_type(DataType type) {
  for (const DataType other : kAllDataTypes)
    if (other != type && size_of(other) == size_of(type)) return other;
  return type;
}

// Chooses algorithm, group and root, until they go together.
Schedule draw_schedule(Dice& dice, PlannedCall& planned, int ranks) {
  const auto algorithms = collectives::all_algorithms();
  while (true) {
    planned.algorithm = &algorithms[dice.below(algorithms.size())];
    if (!suits(*planned.algorithm, ranks)) continue;
    planned.group = planned.algorithm->grouped ? draw_group(dice, ranks) : 1;
    planned.call.root = dice.between(0, ranks - 1);
    if (planned.algorithm->collective == Collective::send_recv)
      planned.call.root = dice.between(1, ranks - 1);  // how far away
    auto schedule = collectives::build(*planned.algorithm, ranks, planned.call.root, planned.group);
    if (schedule.ok()) return *std::move(schedule);
  }
}

}  // namespace

namespace {

// Sizes of blocks, many of them nothing.
void draw_counts(Dice& dice, ChaosCall& call) {
  const auto ranks = at(call.ranks);
  call.counts.resize(call.collective == Collective::all_to_all ? ranks * ranks : ranks);
  for (std::size_t& count : call.counts) count = dice.one_in(3) ? 0 : dice.below(call.count + 1);
  call.count = *std::max_element(call.counts.begin(), call.counts.end());
}

// As the planner does: of blocks that differ, only what moves blocks as they are.
bool may_vary(const ScheduleShape& shape) {
  const bool takes = shape.collective == Collective::all_gather ||
                     shape.collective == Collective::reduce_scatter ||
                     shape.collective == Collective::all_to_all;
  return takes && shape.chunks == 1 && shape.scratch_blocks == 0;
}

}  // namespace

std::string describe(const PlannedCall& planned) {
  const ChaosCall& c = planned.call;
  if (planned.is_message())
    return fmt::format("message {} -> {} of {} x {}", planned.from, planned.to, c.count,
                       to_string(c.type));
  return fmt::format(
      "{} {} of {} x {}, {}, root {}, group {}, {} channels, slices of {}, {}{}",
      planned.algorithm->name, std::string(to_string(c.collective)) + (c.varied() ? "_v" : ""),
      c.count, to_string(c.type), to_string(c.op), c.root, planned.group, planned.settings.channels,
      planned.settings.slice_bytes, planned.settings.direct ? "direct" : "staged",
      std::string(planned.in_place ? ", in place" : "") +
          (planned.ordered ? ", in the order of ranks" : ""));
}

PlannedCall draw_call(Dice& dice, int ranks, const CallRoom& room) {
  PlannedCall planned;
  ChaosCall& call = planned.call;
  const Schedule schedule = draw_schedule(dice, planned, ranks);
  call.collective = planned.algorithm->collective;
  call.ranks = ranks;
  call.type = dice.one_of(kAllDataTypes);
  call.op = dice.one_of(kAllReduceOps);
  const std::uint64_t magnitudes[] = {2, 20, 300, 2000};
  call.count = call.collective == Collective::barrier ? 0 : dice.below(dice.one_of(magnitudes));
  if (ranks > kSomeRanks) call.count = std::min<std::size_t>(call.count, 300);
  if (ranks >= kManyRanks) call.count = std::min<std::size_t>(call.count, 20);
  const bool varies = room.varied && may_vary(schedule.shape) && dice.one_in(3);
  if (varies) draw_counts(dice, call);
  planned.settings.channels = varies ? 1 : dice.between(1, room.channels);
  planned.settings.slice_bytes = draw_slice_bytes(dice, planned, schedule.shape, room.frame_bytes);
  planned.settings.direct = (dice.below(2) == 0 || room.direct) && !varies;
  planned.ordered = is_reduction(call.collective) && dice.one_in(4);
  planned.in_place = dice.below(2) == 0 && !varies && call.collective != Collective::all_to_all &&
                     call.collective != Collective::send_recv;
  using collectives::Copies;
  const bool pulled = planned.algorithm->all_copy() && !varies && dice.one_in(2);
  planned.plans = make_plans(*planned.algorithm, planned.group, schedule, planned.settings,
                             planned.ordered, pulled ? Copies::pulled : Copies::pushed);
  return planned;
}

PlannedCall draw_call_after(const std::deque<PlannedCall>& calls, Dice& dice, int ranks,
                            const CallRoom& room) {
  if (calls.empty() || !dice.one_in(3)) return draw_call(dice, ranks, room);
  PlannedCall again = calls[calls.size() - 1 - dice.below(std::min<std::size_t>(calls.size(), 2))];
  if (again.call.varied())
    draw_counts(dice, again.call);
  else if (dice.one_in(2))
    again.call.count = dice.below(2 * again.call.count + 1);
  if (dice.one_in(4)) again.call.type = another_type(again.call.type);
  again.call.op = dice.one_of(kAllReduceOps);
  return again;
}

PlannedCall draw_variant(Dice& dice, const PlannedCall& call, const CallRoom& room) {
  const bool rooted = has_root(call.call.collective);
  const bool reduces = is_reduction(call.call.collective);
  while (true) {
    PlannedCall other = call;
    switch (dice.below(5)) {
      case 0:
        ++other.call.count;
        return other;
      case 1:
        other.call.type = another_type(call.call.type);
        return other;
      case 2:
        if (!reduces) continue;
        other.call.op = call.call.op == ReduceOp::sum ? ReduceOp::max : ReduceOp::sum;
        return other;
      case 3: {
        if (!rooted) continue;
        other.call.root = (call.call.root + 1) % call.call.ranks;
        auto schedule =
            collectives::build(*other.algorithm, other.call.ranks, other.call.root, other.group);
        TUTTI_ASSERT(schedule.ok(), "every root has a schedule");
        other.plans = make_plans(*other.algorithm, other.group, *schedule, other.settings);
        return other;
      }
      default:
        other = draw_call(dice, call.call.ranks, room);
        other.in_place = false;
        if (other.call.collective == call.call.collective ||
            other.call.collective == Collective::send_recv)
          continue;
        return other;
    }
  }
}

PlannedCall draw_message(Dice& dice, int ranks, Rank from, Rank to, std::size_t count_max) {
  PlannedCall planned;
  ChaosCall& call = planned.call;
  call.collective = Collective::send_recv;
  call.ranks = ranks;
  call.root = (to - from + ranks) % ranks;
  call.type = dice.one_of(kAllDataTypes);
  call.count = 1 + dice.below(count_max);
  planned.from = from;
  planned.to = to;
  return planned;
}

Plans plain_plans(const char* name, Collective collective, int ranks, std::size_t slice_bytes) {
  const auto algorithm = collectives::find_algorithm(collective, name);
  TUTTI_ASSERT(algorithm.ok(), "the table has it");
  const auto schedule = collectives::build(**algorithm, ranks, 0, 1);
  TUTTI_ASSERT(schedule.ok(), "it serves any number of ranks");
  collectives::PlanSettings settings;
  settings.slice_bytes = slice_bytes;
  return make_plans(**algorithm, 1, *schedule, settings);
}

runtime::CommunicatorState::Request request_of(const PlannedCall& planned, Rank rank,
                                               std::byte* input, std::byte* output) {
  const ChaosCall& c = planned.call;
  runtime::CommunicatorState::Request request;
  request.collective = c.collective;
  request.input = input;
  request.output = output;
  request.count = c.count;
  request.type = c.type;
  request.op = c.op;
  if (planned.is_message()) {
    request.to = rank == planned.from ? planned.to : -1;
    request.from = rank == planned.to ? planned.from : -1;
  } else if (c.collective == Collective::send_recv) {
    request.to = (rank + c.root) % c.ranks;
    request.from = (rank - c.root + c.ranks) % c.ranks;
  } else if (has_root(c.collective)) {
    request.root = c.root;
  }
  return request;
}

namespace {

std::vector<runtime::Block> lay_out(const std::vector<std::size_t>& counts, std::size_t element,
                                    std::byte* memory) {
  std::vector<runtime::Block> blocks;
  for (const std::size_t count : counts) {
    blocks.push_back({memory, count});
    memory += count * element;
  }
  return blocks;
}

}  // namespace

runtime::Blocks blocks_of(const ChaosCall& call, Rank rank, std::byte* input, std::byte* output) {
  const std::size_t element = size_of(call.type);
  return {lay_out(input_blocks(call, rank), element, input),
          lay_out(output_blocks(call, rank), element, output)};
}

void vary(runtime::CommunicatorState::Request& request, const ChaosCall& call,
          const runtime::Blocks& blocks) {
  request.blocks = &blocks;
  request.count = 0;
  if (call.collective == Collective::all_to_all) return;  // nobody knows all sizes
  const auto& all = call.collective == Collective::all_gather ? blocks.output : blocks.input;
  request.count = runtime::total(all);
  request.counts_hash = runtime::hash_of_counts(all);
}

// ---- Buffers ----

namespace {

bool holds_only(DataType type, const std::byte* array, std::size_t count, double value) {
  if (count == 0) return true;
  const std::size_t element = size_of(type);
  std::byte one[8];
  write_all(type, one, 1, value);
  return std::memcmp(array, one, element) == 0 &&
         std::memcmp(array, array + element, (count - 1) * element) == 0;
}

}  // namespace

RankBuffers::RankBuffers(Dice& dice, Transport& transport, const PlannedCall& planned, Rank rank,
                         const PlannedCall* variant, bool all_shareable)
    : transport_(transport), all_shareable_(all_shareable), in_place_(false) {
  const ChaosCall& c = planned.call;
  const std::size_t element = size_of(c.type);
  const bool only_root = c.collective == Collective::gather || c.collective == Collective::scatter;
  if (planned.in_place && variant == nullptr && (!only_root || rank == c.root)) {
    in_place_ = true;
    const std::size_t block = at(rank) * c.count * element;
    std::byte* memory =
        allocate(dice, std::max(input_count(c, rank), output_count(c, rank)) * element);
    const bool gathers =
        c.collective == Collective::all_gather || c.collective == Collective::gather;
    const bool scatters =
        c.collective == Collective::reduce_scatter || c.collective == Collective::scatter;
    input_ = memory + (gathers ? block : 0);
    output_ = memory + (scatters ? block : 0);
    return;
  }
  std::size_t in = input_count(c, rank) * element;
  std::size_t out = output_count(c, rank) * element;
  if (variant != nullptr) {
    const std::size_t theirs = size_of(variant->call.type);
    in = std::max(in, input_count(variant->call, rank) * theirs);
    out = std::max(out, output_count(variant->call, rank) * theirs);
  }
  input_ = allocate(dice, in);
  output_ = allocate(dice, out);
}

RankBuffers::~RankBuffers() {
  for (const auto& [memory, is_transports] : owned_) {
    if (is_transports)
      transport_.release_shareable(memory);
    else
      ::operator delete(memory);
  }
}

std::byte* RankBuffers::allocate(Dice& dice, std::size_t bytes) {
  const bool shareable = dice.below(2) == 0 || all_shareable_;
  void* memory = shareable ? transport_.allocate_shareable(bytes + 1) : nullptr;
  const bool is_transports = memory != nullptr;
  if (!is_transports) memory = ::operator new(bytes + 1);
  owned_.emplace_back(static_cast<std::byte*>(memory), is_transports);
  return static_cast<std::byte*>(memory);
}

void RankBuffers::fill(const ChaosCall& c, Rank rank) {
  if (!in_place_) write_all(c.type, output_, output_count(c, rank), kUntouched);
  write_input(c, rank, input_);
}

void RankBuffers::spoil(const ChaosCall& c, Rank rank) {
  write_all(c.type, output_, output_count(c, rank), kReused);
  write_all(c.type, input_, input_count(c, rank), kReused);
  spoiled_ = &c;
}

bool RankBuffers::left_alone(Rank rank) const {
  if (spoiled_ == nullptr) return true;
  const ChaosCall& c = *spoiled_;
  return holds_only(c.type, output_, output_count(c, rank), kReused) &&
         holds_only(c.type, input_, input_count(c, rank), kReused);
}

std::string RankBuffers::find_wrong(const PlannedCall& planned, Rank rank,
                                    ChaosOracle& oracle) const {
  const ChaosCall& c = planned.call;
  const std::size_t bytes = output_count(c, rank) * size_of(c.type);
  std::vector<std::byte> untouched;
  if (planned.is_message() && rank != planned.to)
    return touched(c, rank) ? fmt::format("rank {} received what it sent", rank) : std::string();
  const std::vector<std::byte>* wanted = oracle.expected(rank);
  if (wanted == nullptr) {
    if (in_place_ || bytes == 0) return {};
    untouched.resize(bytes);
    write_all(c.type, untouched.data(), output_count(c, rank), kUntouched);
    wanted = &untouched;
  }
  if (bytes == 0 || std::memcmp(wanted->data(), output_, bytes) == 0) return {};
  std::size_t i = 0;
  while (load(c.type, output_, i) == load(c.type, wanted->data(), i) &&
         i + 1 < output_count(c, rank))
    ++i;
  return fmt::format("rank {} element {}: {} instead of {} ({})", rank, i, load(c.type, output_, i),
                     load(c.type, wanted->data(), i), describe(planned));
}

bool RankBuffers::touched(const ChaosCall& c, Rank rank) const {
  return !holds_only(c.type, output_, output_count(c, rank), kUntouched);
}

}  // namespace tutti::cli

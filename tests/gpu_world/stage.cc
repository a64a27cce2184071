// stage.cc: see stage.hpp. What is expected is folded by the host's kernels, from numbers that
// every order folds alike.
#include "gpu_world/stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/try.hpp"
#include "collectives/contract.hpp"
#include "runtime/kernels/kernels.hpp"
#include "tutti/numeric.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr auto kUntouched = std::byte{0x5a};

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15U;
  value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9U;
  return value ^ value >> 32;
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Of nine ranks at most three have a 2, so that sums and products are numbers of every format,
// whatever the order.
float small_number(std::uint64_t at, Rank rank, ReduceOp op) {
  const bool is_two = (at + static_cast<std::uint64_t>(rank)) % 3 == 0 && rank < 9;
  const float sign = at % 2 == 0 ? 1.0f : -1.0f;
  if (is_two) return op == ReduceOp::min ? -2.0f : 2.0f * sign;
  return op == ReduceOp::prod ? 1.0f : op == ReduceOp::max ? -1.0f : 0.0f;
}

void put_float(std::byte* to, DataType type, float value) {
  switch (type) {
    case DataType::float16:
      return put(to, to_float16(value));
    case DataType::bfloat16:
      return put(to, to_bfloat16(value));
    case DataType::float8_e4m3:
      return put(to, to_float8_e4m3(value));
    case DataType::float8_e5m2:
      return put(to, to_float8_e5m2(value));
    case DataType::float64:
      return put(to, static_cast<double>(value));
    default:
      return put(to, value);
  }
}

std::size_t padded(std::size_t bytes) { return (bytes + kGuardBytes + 255) / 256 * 256; }

}  // namespace

std::string StageCase::text() const {
  return fmt::format("{} of {} x {} {} root {}{} seed {}", to_string(collective), count,
                     to_string(type), to_string(op), root, in_place ? " in place" : "", seed);
}

Result<std::unique_ptr<Stage>> Stage::make(std::span<Device* const> devices,
                                           const GpuOptions& options) {
  auto world = GpuWorld::make(devices, options);
  TUTTI_TRY(world);
  std::unique_ptr<Stage> stage(new Stage);
  stage->world_ = *std::move(world);
  for (Device* const device : devices) {
    Seat& seat = stage->seats_.emplace_back();
    seat.device = device;
    const auto stream = device->make_stream();
    TUTTI_TRY(stream);
    seat.stream = *stream;
  }
  return stage;
}

// The world goes first: it ends what may be under way.
Stage::~Stage() {
  world_.reset();
  for (const Seat& seat : seats_) {
    if (seat.arena != nullptr) seat.device->deallocate(seat.arena);
    if (seat.stream != nullptr) seat.device->destroy_stream(seat.stream);
  }
}

Status Stage::run(const StageCase& what) {
  TUTTI_TRY(set(what));
  TUTTI_TRY(launch_all());
  TUTTI_TRY(synchronize());
  return judge();
}

ScheduleShape Stage::shape() const {
  ScheduleShape shape;
  shape.collective = what_.collective;
  shape.ranks = ranks();
  shape.root = what_.root;
  return shape;
}

std::size_t Stage::blocks(Buffer buffer) const {
  return idx(collectives::contract_chunks(shape(), buffer));
}

Status Stage::set(const StageCase& what) {
  what_ = what;
  for (Rank rank = 0; rank < ranks(); ++rank) TUTTI_TRY(lay_out(rank));
  return refill(what.seed);
}

// Now and then at addresses that allow no vectors.
Status Stage::lay_out(Rank rank) {
  Seat& seat = seats_[idx(rank)];
  const std::size_t shift =
      mixed(what_.seed + static_cast<std::uint64_t>(rank)) % 3 == 0 ? size_of(what_.type) : 0;
  const std::size_t inputs = padded(blocks(Buffer::input) * block_bytes() + shift);
  const std::size_t outputs = padded(blocks(Buffer::output) * block_bytes() + shift);
  seat.input_at = shift;
  seat.output_at = inputs;
  seat.image.resize(inputs + outputs);
  if (seat.arena_bytes < seat.image.size()) {
    if (seat.arena != nullptr) seat.device->deallocate(seat.arena);
    seat.arena = nullptr;
    const auto arena = seat.device->allocate(seat.image.size());
    TUTTI_TRY(arena);
    seat.arena = *arena;
    seat.arena_bytes = seat.image.size();
  }
  if (!what_.in_place) return Status();
  for (int block = 0; block < static_cast<int>(blocks(Buffer::input)); ++block) {
    const int alias = collectives::contract_alias(shape(), rank, block);
    if (alias < 0) continue;
    seat.input_at = shift + idx(std::max(alias - block, 0)) * block_bytes();
    seat.output_at = seat.input_at + idx(block) * block_bytes() - idx(alias) * block_bytes();
    break;
  }
  return Status();
}

Status Stage::refill(std::uint64_t seed) {
  what_.seed = seed;
  for (Rank rank = 0; rank < ranks(); ++rank) {
    fill(rank);
    const Seat& seat = seats_[idx(rank)];
    TUTTI_TRY(seat.device->copy_in(seat.arena, seat.image.data(), seat.image.size()));
  }
  return Status();
}

void Stage::fill(Rank rank) {
  Seat& seat = seats_[idx(rank)];
  std::fill(seat.image.begin(), seat.image.end(), kUntouched);
  const std::size_t element = size_of(what_.type);
  const bool small = is_floating(what_.type) && is_reduction(what_.collective);
  const std::uint64_t salt = mixed(what_.seed) + (static_cast<std::uint64_t>(rank) << 40);
  std::byte* to = seat.image.data() + seat.input_at;
  for (std::size_t i = 0; i < blocks(Buffer::input) * what_.count; ++i, to += element) {
    if (small) {
      put_float(to, what_.type, small_number(i + what_.seed, rank, what_.op));
    } else {
      const std::uint64_t bits = mixed(salt + i);
      std::memcpy(to, &bits, element);
    }
  }
}

GpuCall Stage::call_of(Rank rank) const {
  const Seat& seat = seats_[idx(rank)];
  return {what_.collective,
          what_.type,
          what_.op,
          what_.root,
          seat.arena + seat.input_at,
          seat.arena + seat.output_at,
          what_.count};
}

Status Stage::launch(Rank rank) { return world_->rank(rank).call(call_of(rank), stream(rank)); }

Status Stage::launch_all() {
  for (Rank rank = 0; rank < ranks(); ++rank) TUTTI_TRY(launch(rank));
  return Status();
}

Status Stage::synchronize() {
  Status first;
  for (Rank rank = 0; rank < ranks(); ++rank)
    if (const Status status = world_->rank(rank).synchronize(stream(rank)); first.ok())
      first = status;
  return first;
}

std::vector<std::byte> Stage::expected(Rank rank, std::size_t block, bool& anything) const {
  const auto required = collectives::required_output(shape(), rank, static_cast<int>(block));
  anything = required.rule == collectives::Requirement::Rule::anything;
  if (anything) return {};
  std::vector<const std::byte*> sources;
  for (const collectives::Atom& atom : required.atoms) {
    const Seat& seat = seats_[idx(atom.rank)];
    sources.push_back(seat.image.data() + seat.input_at + idx(atom.chunk) * block_bytes());
  }
  std::vector<std::byte> result(block_bytes());
  if (what_.count == 0 || sources.empty()) return result;
  if (!is_reduction(what_.collective)) {
    std::copy_n(sources[0], block_bytes(), result.data());
    return result;
  }
  std::byte* const destinations[] = {result.data()};
  const int divisor = what_.op == ReduceOp::avg && required.finished ? ranks() : 1;
  kernels::reduce({what_.type, what_.op, sources, destinations, what_.count, divisor});
  return result;
}

Status Stage::judge() {
  std::vector<std::byte> after;
  for (Rank rank = 0; rank < ranks(); ++rank) {
    const Seat& seat = seats_[idx(rank)];
    after.resize(seat.image.size());
    TUTTI_TRY(seat.device->copy_out(after.data(), seat.arena, after.size()));
    TUTTI_TRY(judge_rank(rank, after));
  }
  return Status();
}

// The output as it must be, and all around it as it was: guards, and the input when it is apart.
Status Stage::judge_rank(Rank rank, const std::vector<std::byte>& after) const {
  const Seat& seat = seats_[idx(rank)];
  std::vector<std::byte> wanted = seat.image;
  for (std::size_t block = 0; block < blocks(Buffer::output); ++block) {
    bool anything = false;
    const std::vector<std::byte> content = expected(rank, block, anything);
    const auto at = static_cast<std::ptrdiff_t>(seat.output_at + block * block_bytes());
    if (anything)
      std::copy_n(after.begin() + at, block_bytes(), wanted.begin() + at);
    else
      std::copy(content.begin(), content.end(), wanted.begin() + at);
  }
  if (what_.in_place) {  // what else there is of the input may be anything, too
    const std::size_t output_end = seat.output_at + blocks(Buffer::output) * block_bytes();
    for (std::size_t at = seat.input_at; at < seat.input_at + blocks(Buffer::input) * block_bytes();
         ++at)
      if (at < seat.output_at || at >= output_end) wanted[at] = after[at];
  }
  const auto [want, got] = std::mismatch(wanted.begin(), wanted.end(), after.begin());
  if (want == wanted.end()) return Status();
  return Status(
      StatusCode::internal,
      fmt::format("{}: rank {} of {}: byte {} of its memory (input at {}, output at {}) "
                  "is {:#x} and not {:#x}",
                  what_.text(), rank, ranks(), want - wanted.begin(), seat.input_at, seat.output_at,
                  static_cast<unsigned>(*got), static_cast<unsigned>(*want)),
      rank);
}

}  // namespace tutti::runtime::gpu

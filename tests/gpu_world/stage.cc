// stage.cc: see stage.hpp.
#include "gpu_world/stage.hpp"

#include <fmt/format.h>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
std::string StageCase::text() const {
  return fmt::format("{} of {} x {} {}{} root {}{} seed {}", to_string(collective), count,
                     to_string(type), scaled ? "scaled " : "", to_string(op), root,
                     in_place ? " in place" : "", seed);
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

Status Stage::set(const StageCase& what) {
  what_ = what;
  ScheduleShape shape;
  shape.collective = what.collective;
  shape.ranks = ranks();
  shape.root = what.root;
  const CallKind kind{shape, what.type, what.op, what.count, what.in_place, what.seed, what.scaled};
  const std::size_t bytes = CallData::bytes(kind);
  for (Seat& seat : seats_) {
    if (seat.arena_bytes >= bytes) continue;
    if (seat.arena != nullptr) seat.device->deallocate(seat.arena);
    seat.arena = nullptr;
    seat.arena_bytes = 0;
    const auto arena = seat.device->allocate(bytes);
    TUTTI_TRY(arena);
    seat.arena = *arena;
    seat.arena_bytes = bytes;
  }
  data_ = CallData(kind);
  return copy_images();
}

Status Stage::refill(std::uint64_t seed) {
  data_.refill(seed);
  return copy_images();
}

Status Stage::copy_images() {
  for (Rank rank = 0; rank < ranks(); ++rank) {
    const Seat& seat = seats_[static_cast<std::size_t>(rank)];
    const std::vector<std::byte>& image = data_.seat(rank).image;
    TUTTI_TRY(seat.device->copy_in(seat.arena, image.data(), image.size()));
  }
  return Status();
}

GpuCall Stage::call_of(Rank rank) const {
  std::byte* const arena = seats_[static_cast<std::size_t>(rank)].arena;
  const CallData::Seat& at = data_.seat(rank);
  GpuCall call;
  call.collective = what_.collective;
  call.type = what_.type;
  call.op = what_.op;
  call.root = what_.root;
  call.input = arena + at.input_at;
  call.output = arena + at.output_at;
  call.count = what_.count;
  call.has_factor = what_.scaled;
  if (what_.scaled) call.factor = factor_of(rank, what_.type);
  return call;
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

Status Stage::judge() {
  std::vector<std::byte> after;
  for (Rank rank = 0; rank < ranks(); ++rank) {
    const Seat& seat = seats_[static_cast<std::size_t>(rank)];
    after.resize(data_.seat(rank).image.size());
    TUTTI_TRY(seat.device->copy_out(after.data(), seat.arena, after.size()));
    if (const std::string wrong = data_.judge(rank, after.data()); !wrong.empty())
      return Status(StatusCode::internal, fmt::format("{}: {}", what_.text(), wrong), rank);
  }
  return Status();
}

}  // namespace tutti::runtime::gpu

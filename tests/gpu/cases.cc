// Lays calls out in the memory of ranks and tells kernels where.
#include "cases.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/contract.hpp"

namespace tutti::runtime::gpu {
namespace {

CallKind kind_of(const ScheduleShape& shape, const CallCase& what) {
  return {shape, what.type, what.op, what.count, what.in_place, what.seed, what.scaled};
}

std::size_t scratch_bytes(const ScheduleShape& shape, const CallCase& what) {
  const auto blocks = static_cast<std::size_t>(shape.scratch_blocks);
  return (blocks * what.count * size_of(what.type) + 255) / 256 * 256;
}

std::uint32_t input_blocks(const ScheduleShape& shape) {
  return static_cast<std::uint32_t>(collectives::contract_chunks(shape, Buffer::input) /
                                    shape.chunks);
}

}  // namespace

std::string CallCase::text() const {
  constexpr const char* kTravels[] = {"flagged", "staged", "direct", "mixed"};
  return fmt::format("{} x {} {}{}{} {} channels {} seed {}", count, to_string(type), to_string(op),
                     scaled ? " scaled" : "", in_place ? " in place" : "",
                     kTravels[static_cast<int>(travels)], channels, seed);
}

// Scratch memory behind everything else, and behind that what the input is once it is scaled.
std::size_t Trial::bytes_needed(const ScheduleShape& shape, const CallCase& what) {
  const std::size_t scaled = input_blocks(shape) * what.count * size_of(what.type);
  return CallData::bytes(kind_of(shape, what)) + scratch_bytes(shape, what) +
         (what.scaled ? (scaled + 255) / 256 * 256 : 0);
}

Trial::Trial(const ScheduleShape& shape, const std::vector<EncodedProgram>& programs,
             const CallCase& what, std::vector<std::vector<std::byte>>& arenas, std::size_t offset)
    : what_(what), data_(kind_of(shape, what)) {
  job_.programs = &programs;
  if (is_reduction(shape.collective)) job_.reduces = what.type;
  job_.calls.resize(static_cast<std::size_t>(shape.ranks));
  for (std::size_t rank = 0; rank < job_.calls.size(); ++rank) {
    memory_.push_back(arenas[rank].data() + offset);
    const std::vector<std::byte>& image = data_.seat(static_cast<Rank>(rank)).image;
    std::copy(image.begin(), image.end(), memory_[rank]);
    tell_call(rank, arenas[rank].data(), shape);
  }
}

void Trial::tell_call(std::size_t rank, const std::byte* arena, const ScheduleShape& shape) {
  const CallData::Seat& seat = data_.seat(static_cast<Rank>(rank));
  DeviceCall& call = job_.calls[rank];
  call.count = what_.count;
  call.memory[0] = memory_[rank] + seat.input_at;
  call.memory[1] = memory_[rank] + seat.output_at;
  call.memory[2] = memory_[rank] + seat.image.size();
  if (what_.scaled) scale(call, static_cast<Rank>(rank), shape);
  call.signature = mixed(what_.count * 64 + static_cast<std::uint64_t>(what_.type) * 8 +
                         static_cast<std::uint64_t>(what_.op));
  call.element_bytes = static_cast<std::uint32_t>(size_of(what_.type));
  call.op = what_.op;
  call.channels = what_.channels;
  call.timeout_ns = 60'000'000'000;
  call.protocol = what_.travels == Travels::flagged ? Protocol::low_latency : Protocol::simple;
  call.direct = what_.travels == Travels::direct || what_.travels == Travels::mixed;
  if (!call.direct) return;
  for (std::size_t buffer = 0; buffer < kBufferCount; ++buffer)
    if (what_.travels == Travels::direct ||
        mixed(what_.seed * 64 + rank * kBufferCount + buffer) % 2 == 0)
      call.shared[buffer] = HostWorld::reference(arena, call.memory[buffer]);
}

// Onto itself where the result is to replace it.
void Trial::scale(DeviceCall& call, Rank rank, const ScheduleShape& shape) {
  call.unscaled = call.memory[0];
  call.unscaled_blocks = input_blocks(shape);
  call.factor = factor_of(rank, what_.type);
  if (!what_.in_place) call.memory[0] = call.memory[2] + scratch_bytes(shape, what_);
}

void Trial::fill(std::size_t rank) {
  const CallData::Seat& seat = data_.seat(static_cast<Rank>(rank));
  std::copy_n(seat.image.data() + seat.input_at, data_.input_bytes(),
              memory_[rank] + seat.input_at);
}

std::string Trial::judge() const {
  for (std::size_t rank = 0; rank < memory_.size(); ++rank)
    if (const std::string wrong = data_.judge(static_cast<Rank>(rank), memory_[rank]);
        !wrong.empty())
      return fmt::format("{}: {}", what_.text(), wrong);
  return {};
}

}  // namespace tutti::runtime::gpu

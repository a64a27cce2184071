// request.cc: see request.hpp.
#include "runtime/request.hpp"

#include <limits>

#include <fmt/format.h>

#include "runtime/arrival.hpp"

namespace tutti::runtime {
namespace {

Status refusal(Rank rank, Collective collective, const std::string& reason) {
  return Status(StatusCode::invalid_argument,
                fmt::format("rank {}: {}: {}", rank, to_string(collective), reason));
}

// Ok, or why there is no such call among `size` ranks.
std::string impossible(const Request& r, int size) {
  const std::size_t limit =
      std::numeric_limits<std::ptrdiff_t>::max() / size_of(r.type) / static_cast<std::size_t>(size);
  if (r.count > kCountMax || r.count > limit)
    return fmt::format("count {} is more than memory can hold", r.count);
  if (has_root(r.collective) && (r.root < 0 || r.root >= size))
    return fmt::format("root {} is not one of the {} ranks", r.root, size);
  for (const Rank peer : {r.to, r.from})
    if (peer < -1 || peer >= size)
      return fmt::format("peer {} is not one of the {} ranks", peer, size);
  return "";
}

std::size_t bytes_of(const Request& r, int size, Buffer buffer) {
  ScheduleShape shape;
  shape.collective = r.collective;
  shape.ranks = size;
  return static_cast<std::size_t>(block_count(shape, buffer)) * r.count * size_of(r.type);
}

}  // namespace

Result<RequestShape> RequestShape::of(const Request& r, Rank rank, int size) {
  if (const std::string reason = impossible(r, size); !reason.empty())
    return refusal(rank, r.collective, reason);
  const bool is_root = rank == r.root;
  const bool root_reads =
      r.collective == Collective::broadcast || r.collective == Collective::scatter;
  const bool root_writes = r.collective == Collective::reduce || r.collective == Collective::gather;
  const bool exchanges = r.collective == Collective::send_recv;
  RequestShape shape;
  shape.known_ = true;
  shape.collective_ = r.collective;
  shape.count_ = r.count;
  shape.type_ = r.type;
  shape.rank_ = rank;
  shape.root_ = r.root;
  shape.to_ = r.to;
  shape.from_ = r.from;
  if ((!root_reads || is_root) && (!exchanges || r.to >= 0))
    shape.input_bytes_ = bytes_of(r, size, Buffer::input);
  if ((!root_writes || is_root) && (!exchanges || r.from >= 0))
    shape.output_bytes_ = bytes_of(r, size, Buffer::output);
  return shape;
}

Status RequestShape::check_buffers(const Request& r) const {
  if (input_bytes_ > 0 && r.input == nullptr) [[unlikely]]
    return refuse("input is null");
  if (output_bytes_ > 0 && r.output == nullptr) [[unlikely]]
    return refuse("output is null");
  if (input_bytes_ == 0 || output_bytes_ == 0) return Status();
  const auto input = reinterpret_cast<std::uintptr_t>(r.input);
  const auto output = reinterpret_cast<std::uintptr_t>(r.output);
  if (input + input_bytes_ <= output || output + output_bytes_ <= input) return Status();
  if (in_place(input, output)) return Status();
  switch (collective_) {
    case Collective::all_gather:
    case Collective::gather:
      return refuse("input overlaps output; in place it must lie at output + rank * count");
    case Collective::reduce_scatter:
    case Collective::scatter:
      return refuse("output overlaps input; in place it must lie at input + rank * count");
    case Collective::all_to_all:
    case Collective::send_recv:
      return refuse("input and output overlap; use two buffers");
    default:
      return refuse("input and output overlap without being equal");
  }
}

// Overlap is allowed only exactly there.
bool RequestShape::in_place(std::uintptr_t input, std::uintptr_t output) const {
  const std::uintptr_t own_block =
      static_cast<std::uintptr_t>(rank_) * static_cast<std::uintptr_t>(count_) * size_of(type_);
  switch (collective_) {
    case Collective::all_gather:
    case Collective::gather:
      return input == output + own_block;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return output == input + own_block;
    case Collective::all_to_all:
    case Collective::send_recv:
      return false;
    default:
      return input == output;
  }
}

Status RequestShape::refuse(const char* reason) const {
  return refusal(rank_, collective_, reason);
}

}  // namespace tutti::runtime

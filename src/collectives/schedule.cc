// The value types of a Schedule and the arithmetic of affine indices.
#include "tutti/schedule.hpp"

#include "base/assert.hpp"

namespace tutti {
namespace {

int floor_mod(int value, int modulus) {
  const int rest = value % modulus;
  return rest < 0 ? rest + modulus : rest;
}

// The same index with base and stride multiplied in; only for indices without a modulus.
AffineIndex linear(AffineIndex a) {
  return AffineIndex::raw(0, 1, a.stride() * a.rank_factor(), a.stride() * a.loop_factor(),
                          a.base() + a.stride() * a.constant(), 0);
}

}  // namespace

int AffineIndex::at(Rank rank, int loop_index) const {
  int inner = rank_factor_ * rank + loop_factor_ * loop_index + constant_;
  if (modulus_ != 0) inner = floor_mod(inner, modulus_);
  return base_ + stride_ * inner;
}

AffineIndex operator+(AffineIndex a, AffineIndex b) {
  if (a.modulus() == 0 && b.modulus() == 0) {
    const AffineIndex x = linear(a);
    const AffineIndex y = linear(b);
    return AffineIndex::raw(0, 1, x.rank_factor() + y.rank_factor(),
                            x.loop_factor() + y.loop_factor(), x.constant() + y.constant(), 0);
  }
  if (a.modulus() == 0) return b + a;
  TUTTI_ASSERT(b.modulus() == 0 && b.is_constant(), "only a constant can be added after a modulo");
  return AffineIndex::raw(a.base() + linear(b).constant(), a.stride(), a.rank_factor(),
                          a.loop_factor(), a.constant(), a.modulus());
}

AffineIndex operator*(AffineIndex a, int factor) {
  if (a.modulus() == 0) {
    const AffineIndex x = linear(a);
    return AffineIndex::raw(0, 1, x.rank_factor() * factor, x.loop_factor() * factor,
                            x.constant() * factor, 0);
  }
  return AffineIndex::raw(a.base() * factor, a.stride() * factor, a.rank_factor(), a.loop_factor(),
                          a.constant(), a.modulus());
}

AffineIndex operator-(AffineIndex a, AffineIndex b) { return a + b * -1; }

AffineIndex operator%(AffineIndex a, int modulus) {
  TUTTI_ASSERT(modulus > 0, "a modulus is positive");
  TUTTI_ASSERT(a.modulus() == 0, "only one modulo per index");
  const AffineIndex x = linear(a);
  const int constant = floor_mod(x.constant(), modulus);
  if (x.is_constant()) return constant;
  return AffineIndex::raw(0, 1, x.rank_factor(), x.loop_factor(), constant, modulus);
}

std::string_view to_string(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
  }
  return "unknown";
}

int block_count(const ScheduleShape& shape, Buffer buffer) {
  if (buffer == Buffer::scratch) return shape.scratch_blocks;
  switch (shape.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return buffer == Buffer::output ? shape.ranks : 1;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return buffer == Buffer::input ? shape.ranks : 1;
    case Collective::all_to_all:
      return shape.ranks;
    default:
      return 1;
  }
}

int aliased_chunk(const ScheduleShape& shape, Rank rank, int input_chunk) {
  const bool own_block = input_chunk / shape.chunks == rank;
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::barrier:
      return input_chunk;
    case Collective::all_gather:
      return rank * shape.chunks + input_chunk;
    case Collective::reduce_scatter:
      return own_block ? input_chunk % shape.chunks : -1;
    case Collective::gather:
      return rank == shape.root ? rank * shape.chunks + input_chunk : -1;
    case Collective::scatter:
      return rank == shape.root && own_block ? input_chunk % shape.chunks : -1;
    case Collective::all_to_all:
    case Collective::send_recv:
      return -1;
  }
  return -1;
}

}  // namespace tutti

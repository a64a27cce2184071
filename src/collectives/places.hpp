// places.hpp: a rank's chunks by number, an input chunk and the output chunk that is the same
// memory in place by one.
#pragma once

#include "tutti/schedule.hpp"

namespace tutti::collectives {

class Places {
 public:
  Places(const ScheduleShape& shape, Rank rank) : shape_(shape), rank_(rank) {
    outputs_ = block_count(shape, Buffer::output) * shape.chunks;
    inputs_ = block_count(shape, Buffer::input) * shape.chunks;
  }

  int count() const { return outputs_ + inputs_ + shape_.scratch_blocks * shape_.chunks; }

  int of(Buffer buffer, int chunk) const {
    if (buffer == Buffer::output) return chunk;
    if (buffer == Buffer::scratch) return outputs_ + inputs_ + chunk;
    const int alias = aliased_chunk(shape_, rank_, chunk);
    return alias >= 0 ? alias : outputs_ + chunk;
  }

 private:
  ScheduleShape shape_;
  Rank rank_;
  int outputs_ = 0;
  int inputs_ = 0;
};

}  // namespace tutti::collectives

// frame_tag.hpp: what a frame between two executors carries.
#pragma once

#include <cstdint>

namespace tutti::runtime {

enum class FrameTag : std::uint32_t {
  arrival = 1,            // an arrival record
  data = 2,               // a message
  arrival_with_data = 3,  // both: the first message of a call, when it is small enough
};

}  // namespace tutti::runtime

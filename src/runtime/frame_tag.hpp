// frame_tag.hpp: what a frame between two ranks of a communicator carries.
#pragma once

#include <cstdint>

namespace tutti::runtime {

enum class FrameTag : std::uint32_t {
  arrival = 1,            // an arrival record
  data = 2,               // a message
  arrival_with_data = 3,  // both: the first message of a call, when it is small enough
  message_part = 4,       // of a membership message: more of it follows
  message_end = 5,        // its last frame
};

}  // namespace tutti::runtime

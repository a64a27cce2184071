// targets.hpp: what a row of a batch is trained to say, where that is not a token.
#pragma once

#include <cstdint>

namespace tutti::training {

// The target of a row that does not count.
inline constexpr std::int32_t kIgnored = -1;

}  // namespace tutti::training

// layout.hpp: whether a model divides into the parts that a layout asks for.
#pragma once

#include "tutti/status.hpp"

namespace tutti::training {

struct EngineOptions;

// Errors  invalid_argument with the numbers that do not divide, and what would.
Status check_layout(const EngineOptions& options, int world);

}  // namespace tutti::training

// tutti.hpp: everything a program that uses Tutti needs, in one include.
#pragma once

#include "tutti/communicator.hpp"  // IWYU pragma: export
#include "tutti/numeric.hpp"       // IWYU pragma: export
#include "tutti/reduction.hpp"     // IWYU pragma: export
#include "tutti/status.hpp"        // IWYU pragma: export
#include "tutti/stream.hpp"        // IWYU pragma: export
#include "tutti/types.hpp"         // IWYU pragma: export

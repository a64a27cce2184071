// executor_options.hpp: what of a rank's part of a call can be settled from outside, as tests do.
#pragma once

#include <cstddef>
#include <optional>

#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime {

// Numbers that never change what is computed, only how fast.
struct ExecutorOptions {
  // Calls whose results have so many bytes store past the caches; somewhat smaller ones, if that is
  // found to be quicker (stream_choice.hpp).
  std::size_t streaming_bytes = std::size_t{24} << 20;
  // Which way large stores go, as far as they can; without, the one that is found to be quicker.
  std::optional<kernels::StoreHint> stores;
  // Whether copies are loaded that could be stored, the same on all ranks; without, as is agreed.
  std::optional<bool> pulls;
};

}  // namespace tutti::runtime

// init_config.hpp: what a caller's ncclConfig_t asks for, whichever NCCL's header it was compiled
// with.
#pragma once

#include <string>

#include "nccl/abi.hpp"
#include "tutti/status.hpp"

namespace tutti::nccl {

struct InitConfig {
  bool blocking = true;
  bool copy_engines = false;  // CTAPolicy ZERO: no kernels where none are needed
  std::string name;
};

// Null: all defaults. NCCL_COMM_BLOCKING wins over what the config says.
// Errors  invalid_argument, naming the member and its value: no config, or one that cannot be.
Result<InitConfig> read_config(const ncclConfig_t* config);

}  // namespace tutti::nccl

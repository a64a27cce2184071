// process.cc: see process.hpp.
#include "nccl/process.hpp"

#include <atomic>
#include <cstdio>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/environment.hpp"
#include "base/fork.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "tutti/nccl.h"

namespace tutti::nccl {

const Settings& settings() {
  static const Settings read = read_settings(base::capture_environment());
  return read;
}

base::Log log() { return base::Log(settings().log.value_or(base::LogLevel::warn), "nccl"); }

void introduce(int rank) {
  static std::atomic_flag said;
  if (!said.test_and_set()) {
    for (const std::string& remark : settings().remarks) log().warn(remark);
    if (!settings().ignored.empty())
      log().warn(fmt::format("these have no effect here: {}", fmt::join(settings().ignored, ", ")));
  }
  static std::atomic_flag version_said;
  if (rank == 0 && settings().version && !version_said.test_and_set()) {
    std::printf("NCCL version %d.%d.%d (Tutti %s)\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
                TUTTI_VERSION);
    std::fflush(stdout);
  }
}

std::string process_identity() {
  static std::mutex mutex;
  static std::uint32_t generation;
  static std::string identity;
  const std::lock_guard lock(mutex);
  if (identity.empty() || generation != base::fork_generation()) {
    generation = base::fork_generation();
    identity = transport::random_nonce();
  }
  return identity;
}

}  // namespace tutti::nccl

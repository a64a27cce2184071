// shared_cores.cc: see shared_cores.hpp.
#include "cli/launcher/shared_cores.hpp"

#include <string>
#include <string_view>

namespace tutti::cli::launcher {

void turn_off_restartable_sequences(base::Environment& environment) {
  constexpr std::string_view kName = "glibc.pthread.rseq";
  std::string& tunables = environment["GLIBC_TUNABLES"];
  const std::string listed = ":" + tunables;
  if (listed.find(":" + std::string(kName) + "=") != std::string::npos) return;
  if (!tunables.empty()) tunables += ':';
  tunables.append(kName).append("=0");
}

}  // namespace tutti::cli::launcher

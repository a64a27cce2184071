// nccl_speeds.cc: see nccl_speeds.hpp. Between processors, what NCCL takes for them.
#include "topology/nccl_speeds.hpp"

#include <array>

#include "topology/defaults.hpp"

namespace tutti::topology {
namespace {

// From this one on, in descending order.
struct Step {
  int from;
  double bandwidth;
};

template <std::size_t n>
double step_of(const std::array<Step, n>& steps, int value) {
  for (const Step& step : steps)
    if (value >= step.from) return step.bandwidth;
  return steps.back().bandwidth;
}

constexpr std::array<Step, 6> kNvlinks = {
    {{100, 50}, {90, 25}, {86, 14}, {70, 25}, {60, 20}, {0, 20}}};

// Of family 6: Emerald Rapids, Sapphire Rapids, Skylake, and what was before.
constexpr int kIntelFamily = 6;
constexpr std::array<Step, 4> kIntel = {{{0xcf, 40}, {0x8f, 22}, {0x55, 10}, {0, 6}}};

}  // namespace

double nvlink_bandwidth(int sm) { return step_of(kNvlinks, sm); }

double xgmi_bandwidth(std::string_view gcn) {
  if (gcn.starts_with("gfx90a") || gcn == "910") return 36;
  if (gcn.starts_with("gfx94") || gcn.starts_with("gfx95")) return 48;
  return 24;
}

double cpu_bandwidth(const CpuModel& cpu) {
  if (cpu.arch == "ppc64") return 32;
  if (cpu.arch == "arm64") return 6;
  if (cpu.vendor == "AuthenticAMD") return 16;
  if (cpu.vendor == "GenuineIntel" && cpu.family == kIntelFamily) return step_of(kIntel, cpu.model);
  if (cpu.vendor == "CentaurHauls" || cpu.vendor == "  Shanghai  ") return 6;
  return kPackageBandwidth;
}

}  // namespace tutti::topology

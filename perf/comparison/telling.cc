// telling.cc: see telling.hpp.
#include "perf/comparison/telling.hpp"

#include <algorithm>

namespace tutti::comparison {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text)
    if (letter >= ' ' && letter != '"' && letter != '\\') result += letter;
  return result + "\"";
}

void tell_cpus(std::FILE* report, const cpu_set_t& cpus) {
  const char* before = "[";
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    std::fprintf(report, "%s%d", before, cpu);
    before = ",";
  }
  std::fputs("]", report);
}

void tell_kind(std::FILE* report, Operation operation, Type type) {
  std::fprintf(report, "{\"operation\":%s,\"type\":%s", quoted(name_of(operation)).c_str(),
               quoted(name_of(type)).c_str());
}

}  // namespace

double at_quantile_us(const std::vector<Nanoseconds>& sorted, double quantile) {
  const double place = quantile * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return ((1 - part) * static_cast<double>(sorted[below]) +
          part * static_cast<double>(sorted[above])) /
         1e3;
}

void tell_launch(std::FILE* report, const Peer& peer, const Stage& stage) {
  std::fprintf(report, "{\"library\":%s,\"cpus\":[", quoted(peer.describe()).c_str());
  for (int seat = 0; seat < peer.size() / peer.held(); ++seat) {
    if (seat > 0) std::fputc(',', report);
    tell_cpus(report, stage.cpus(seat));
  }
  std::fputs("]}\n", report);
}

void tell_work(std::FILE* report, const Work& work, const Times& times, std::size_t wrong) {
  tell_kind(report, work.operation, work.type);
  std::fprintf(
      report,
      ",\"bytes\":%zu,\"way\":%s,\"calls\":%zu,\"batch\":%zu,\"quiet\":%zu,\"median_us\":%.3f,"
      "\"p10_us\":%.3f,\"p90_us\":%.3f,\"line_ns\":[%lld,%lld],\"wrong\":%zu}\n",
      work.bytes, quoted(times.way).c_str(), times.calls.size() * times.batch, times.batch,
      times.quiet, at_quantile_us(times.calls, 0.5), at_quantile_us(times.calls, 0.1),
      at_quantile_us(times.calls, 0.9), static_cast<long long>(times.line_before),
      static_cast<long long>(times.line_after), wrong);
}

void tell_unable(std::FILE* report, Operation operation, Type type, const std::string& reason) {
  tell_kind(report, operation, type);
  std::fprintf(report, ",\"unable\":%s}\n", quoted(reason).c_str());
}

}  // namespace tutti::comparison

// Lines of text, nothing else.
#include "runtime/flight/text.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace tutti::runtime::flight {

std::string format_seconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string describe_signature(const Signature& signature) {
  const std::string text = to_string(signature);
  return text.substr(0, text.rfind(", plan "));
}

std::string describe_state(const CommunicatorView& view) {
  const CallView* latest = view.latest();
  if (latest == nullptr) return view.begun == 0 ? "no calls yet" : "between two calls";
  std::string text = describe_signature(latest->signature);
  if (!latest->running)
    return fmt::format("idle for {} after {}",
                       format_seconds(std::max(0.0, latest->started_ago - latest->took)), text);
  text += fmt::format("; for {}", format_seconds(latest->started_ago));
  if (view.wait)
    text += fmt::format("; has waited for {} for {}", view.wait->what,
                        format_seconds(view.wait->since_ago));
  if (view.queued > 0) text += fmt::format("; {} more calls are queued", view.queued);
  return text;
}

std::string describe_calls(const CommunicatorView& view, std::size_t calls_max,
                           const std::string& indent) {
  std::string text;
  const std::size_t skipped = view.calls.size() - std::min(view.calls.size(), calls_max);
  for (std::size_t i = skipped; i < view.calls.size(); ++i) {
    const CallView& call = view.calls[i];
    std::string end = "running";
    if (!call.running) {
      end = fmt::format("took {}", format_seconds(call.took));
      if (call.outcome != StatusCode::ok) end += fmt::format(", {}", to_string(call.outcome));
    }
    text += fmt::format("{}{:>9} ago  {}  {}\n", indent, format_seconds(call.started_ago),
                        describe_signature(call.signature), end);
  }
  return text;
}

std::string describe_failure(const CommunicatorView& view, std::size_t calls_max) {
  std::string text = "this communicator has failed";
  if (view.failure)
    text += fmt::format(": {}: {}", to_string(view.failure->code), view.failure->text);
  std::string calls = describe_calls(view, calls_max, "    ");
  if (calls.empty()) return text;
  calls.pop_back();
  return fmt::format("{}\n  its last calls:\n{}", text, calls);
}

std::string_view describe_process_state(char state) {
  switch (state) {
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "dead";
    case 'D':
      return "in the kernel";
    case '?':
      return "unknown";
    default:
      return "running";
  }
}

std::string describe_ranks(const std::vector<Process>& processes, const CommunicatorView& view,
                           const std::string& indent) {
  std::map<Rank, std::string> lines;
  for (const Process& process : processes)
    for (const CommunicatorView& other : process.recorder.communicators) {
      if (other.job != view.job || other.context != view.context) continue;
      std::string line = fmt::format("{}rank {} (pid {}, {}): {}", indent, other.rank, process.pid,
                                     describe_process_state(process.state), describe_state(other));
      if (other.failure) line += fmt::format("; failed: {}", other.failure->text);
      lines[other.rank] = line + "\n";
    }
  std::string text;
  for (const auto& [rank, line] : lines) text += line;
  if (const auto found = static_cast<int>(lines.size()); found < view.size)
    text += fmt::format("{}{} of {} ranks were not found on this host\n", indent, view.size - found,
                        view.size);
  return text;
}

}  // namespace tutti::runtime::flight

// Field by field.
#include "cli/doctor_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/flight/chain.hpp"
#include "runtime/flight/text.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;
using runtime::flight::CallView;
using runtime::flight::CommunicatorView;
using runtime::flight::Process;

json call_json(const CallView& call) {
  const runtime::Signature& s = call.signature;
  json out{{"number", call.number},
           {"sequence", s.sequence},
           {"collective", to_string(s.collective)},
           {"count", s.count},
           {"type", to_string(s.type)},
           {"root", s.root},
           {"plan", fmt::format("{:016x}", s.plan_hash)},
           {"started_ago_s", call.started_ago},
           {"state", call.running ? "running" : to_string(call.outcome)}};
  if (is_reduction(s.collective)) out["op"] = to_string(s.op);
  if (!call.running) out["took_s"] = call.took;
  return out;
}

json communicator_json(const CommunicatorView& view, const std::vector<Process>& all) {
  json out{{"job", fmt::format("{:016x}", view.job)},
           {"context", fmt::format("{:016x}", view.context)},
           {"rank", view.rank},
           {"size", view.size},
           {"transport", view.transport},
           {"made_ago_s", view.made_ago},
           {"calls_begun", view.begun},
           {"queued", view.queued},
           {"memory",
            {{"transport_bytes", view.memory.transport_bytes},
             {"scratch_bytes", view.memory.scratch_bytes},
             {"plan_bytes", view.memory.plan_bytes},
             {"recorder_bytes", view.memory.recorder_bytes},
             {"total_bytes", view.memory.total_bytes()}}},
           {"calls", json::array()}};
  for (const CallView& call : view.calls) out["calls"].push_back(call_json(call));
  if (view.wait)
    out["wait"] = {{"ranks", view.wait->ranks},
                   {"for", view.wait->what},
                   {"since_ago_s", view.wait->since_ago}};
  if (view.failure)
    out["failure"] = {{"code", to_string(view.failure->code)},
                      {"culprit", view.failure->culprit},
                      {"text", view.failure->text},
                      {"ago_s", view.failure->ago}};
  if (const auto culprit = runtime::flight::find_culprit_of(all, view))
    out["culprit"] = {{"rank", culprit->rank},
                      {"pid", culprit->pid},
                      {"why", culprit->why},
                      {"chain", to_string(*culprit)}};
  return out;
}

}  // namespace

std::string doctor_json(const std::vector<Process>& shown, const std::vector<Process>& all,
                        const std::vector<Check>& checks) {
  json out{{"processes", json::array()}, {"checks", json::array()}};
  for (const Process& process : shown) {
    json one{{"pid", process.pid},
             {"command", process.command},
             {"state", runtime::flight::describe_process_state(process.state)},
             {"communicators", json::array()}};
    for (const CommunicatorView& view : process.recorder.communicators)
      one["communicators"].push_back(communicator_json(view, all));
    out["processes"].push_back(std::move(one));
  }
  for (const Check& check : checks)
    out["checks"].push_back({{"name", check.name}, {"good", check.good}, {"found", check.found}});
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::cli

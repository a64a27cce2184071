// checks.cc: see checks.hpp.
#include "gpu_check/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/try.hpp"
#include "collectives/contract.hpp"
#include "gpu_world/joint_graph.hpp"
#include "gpu_world/stage.hpp"

namespace tutti::gpu_check {
namespace {

using runtime::gpu::Device;
using runtime::gpu::GpuOptions;
using runtime::gpu::GpuWorld;
using runtime::gpu::GraphHandle;
using runtime::gpu::Stage;
using runtime::gpu::StageCase;
using runtime::gpu::StreamHandle;
using Clock = std::chrono::steady_clock;

// Kernels that were told to leave must be gone by then.
constexpr auto kLeaveWithin = std::chrono::seconds(10);

std::vector<Device*> on(Device& device, int ranks) {
  return std::vector<Device*>(static_cast<std::size_t>(ranks), &device);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::vector<StageCase> cases_of(int ranks, const std::vector<std::size_t>& counts, int one_in) {
  std::vector<StageCase> cases;
  int number = 0;
  const auto add = [&](Collective collective, DataType type, ReduceOp op, std::size_t count,
                       bool in_place, bool scaled) {
    if (number++ % one_in != 0) return;
    const auto seed = static_cast<std::uint64_t>(number);
    cases.push_back({collective, type, op, number % ranks, count, in_place, seed, scaled});
  };
  for (const Collective collective : kAllCollectives) {
    number = 0;
    for (const DataType type : kAllDataTypes)
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true})
          for (const ReduceOp op : kAllReduceOps) {
            if (in_place && !collectives::may_run_in_place(collective)) continue;
            if (!is_reduction(collective) && op != ReduceOp::sum) continue;
            if (collective == Collective::barrier && (count != 0 || type != DataType::int8))
              continue;
            add(collective, type, op, count, in_place, false);
            if (is_reduction(collective) && op == ReduceOp::sum)
              add(collective, type, op, count, in_place, true);
          }
  }
  return cases;
}

namespace {

// What became of many cases.
struct Tally {
  int done = 0;
  int planned = 0;
  int failures = 0;
  std::string first_failure;
  std::vector<int> by_collective = std::vector<int>(std::size(kAllCollectives), 0);
};

Status run_cases(Device& device, int ranks, const Extent& extent, Clock::time_point end,
                 Tally& tally) {
  auto stage = Stage::make(on(device, ranks), extent.options);
  TUTTI_TRY(stage);
  std::vector<StageCase> cases = cases_of(ranks, extent.counts, extent.one_in);
  const std::vector<StageCase> large = cases_of(ranks, extent.large, extent.large_one_in);
  cases.insert(cases.end(), large.begin(), large.end());
  tally.planned += static_cast<int>(cases.size());
  for (const StageCase& what : cases) {
    if (Clock::now() >= end) break;
    const Status status = (*stage)->run(what);
    ++tally.done;
    ++tally.by_collective[static_cast<std::size_t>(what.collective)];
    if (status.ok()) continue;
    const std::string text =
        fmt::format("{} ranks: {}: {}", ranks, what.text(), status.to_string());
    fmt::print("wrong: {}\n", text);
    if (tally.failures++ == 0) tally.first_failure = text;
    if (tally.failures >= extent.failures_max) return Status();
    (*stage).reset();  // what has failed stays failed
    stage = Stage::make(on(device, ranks), extent.options);
    TUTTI_TRY(stage);
  }
  return Status();
}

// Until nothing of the stage is left to do on the device; false: it did not end.
bool ends_soon(Device& device, Stage& stage) {
  const auto end = Clock::now() + kLeaveWithin;
  for (Rank rank = 0; rank < stage.ranks();) {
    const auto reached = device.reached(stage.stream(rank));
    if (!reached.ok()) return false;
    if (*reached) {
      ++rank;
      continue;
    }
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

Status capture_all(Device& device, Stage& stage, std::vector<GraphHandle>& graphs) {
  for (Rank rank = 0; rank < stage.ranks(); ++rank) {
    TUTTI_TRY(device.begin_capture(stage.stream(rank)));
    const Status launched = stage.launch(rank);
    const auto graph = device.end_capture(stage.stream(rank));
    TUTTI_TRY(launched);
    TUTTI_TRY(graph);
    graphs.push_back(*graph);
  }
  return Status();
}

Status replay_all(Device& device, Stage& stage, const std::vector<GraphHandle>& graphs) {
  for (std::uint64_t replay = 0; replay < 3; ++replay) {
    TUTTI_TRY(stage.refill(100 + replay));
    for (Rank rank = 0; rank < stage.ranks(); ++rank)
      TUTTI_TRY(device.replay(graphs[static_cast<std::size_t>(rank)], stage.stream(rank)));
    TUTTI_TRY(stage.synchronize());
    TUTTI_TRY(stage.judge());
  }
  return Status();
}

Status check_graph(Device& device, Stage& stage, const StageCase& what) {
  TUTTI_TRY(stage.set(what));
  std::vector<GraphHandle> graphs;
  Status status = capture_all(device, stage, graphs);
  if (status.ok()) status = replay_all(device, stage, graphs);
  for (const GraphHandle graph : graphs) device.destroy_graph(graph);
  TUTTI_TRY(status);
  return stage.run(what);  // and a plain call afterwards
}

// Two calls of all ranks in one graph: how a program has them that captures a whole step.
Status check_joint_graph(Device& device, Stage& stage, const StageCase& what) {
  TUTTI_TRY(stage.set(what));
  std::vector<StreamHandle> streams;
  for (Rank rank = 0; rank < stage.ranks(); ++rank) streams.push_back(stage.stream(rank));
  const auto graph = runtime::gpu::capture_jointly(device, streams, [&] {
    TUTTI_TRY(stage.launch_all());
    return stage.launch_all();
  });
  TUTTI_TRY(graph);
  Status status;
  for (std::uint64_t replay = 0; replay < 3 && status.ok(); ++replay) {
    status = stage.refill(200 + replay);
    if (status.ok()) status = device.replay(*graph, streams.front());
    if (status.ok()) status = stage.synchronize();
    if (status.ok()) status = stage.judge();
  }
  device.destroy_graph(*graph);
  return status;
}

StageCase large_sum(std::size_t count) {
  StageCase what;
  what.count = count;
  what.seed = 1;
  return what;
}

std::size_t largest(const Extent& extent) {
  const auto& counts = extent.large.empty() ? extent.counts : extent.large;
  return *std::max_element(counts.begin(), counts.end());
}

// Two ranks at least.
int some_ranks(const Extent& extent) { return std::max(2, extent.ranks.back()); }

void tell(Report& report, const char* name, const Status& status, const std::string& detail) {
  if (status.ok())
    report.passed(name, detail);
  else
    report.failed(name, status.to_string());
}

}  // namespace

void check_results(Device& device, const Extent& extent, Report& report) {
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(extent.limit_s));
  Tally tally;
  for (const int ranks : extent.ranks) {
    const Status status = run_cases(device, ranks, extent, end, tally);
    if (!status.ok()) return tell(report, "results", status, "");
    if (tally.failures >= extent.failures_max) break;
  }
  std::string detail =
      fmt::format("{} of {} cases, {:.1f} s;", tally.done, tally.planned, seconds_since(begin));
  for (const Collective collective : kAllCollectives)
    detail += fmt::format(" {} {}", to_string(collective),
                          tally.by_collective[static_cast<std::size_t>(collective)]);
  if (tally.failures > 0)
    report.failed("results", fmt::format("{}; {} wrong; the first: {}", detail, tally.failures,
                                         tally.first_failure));
  else if (tally.done < tally.planned)
    report.passed("results", detail + "; the limit of time came first");
  else
    report.passed("results", detail);
}

void check_graphs(Device& device, const Extent& extent, Report& report) {
  const int ranks = some_ranks(extent);
  auto stage = Stage::make(on(device, ranks), extent.options);
  int graphs = 0;
  Status status = stage.ok() ? Status() : stage.status();
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::all_to_all})
    for (const std::size_t count : {std::size_t{7}, largest(extent)}) {
      if (!status.ok()) break;
      StageCase what = large_sum(count);
      what.collective = collective;
      status = check_graph(device, **stage, what);
      if (!status.ok()) status = status.with_context(what.text());
      ++graphs;
    }
  tell(report, "captured graphs", status,
       fmt::format("{} ranks, {} graphs each, three replays of each with other data", ranks,
                   graphs));
}

void check_joint_graphs(Device& device, const Extent& extent, Report& report) {
  constexpr const char* kName = "graphs of all ranks";
  const int ranks = some_ranks(extent);
  auto stage = Stage::make(on(device, ranks), extent.options);
  if (!stage.ok()) return tell(report, kName, stage.status(), "");
  for (const std::size_t count : {std::size_t{7}, largest(extent)}) {
    const StageCase what = large_sum(count);
    const Status status = check_joint_graph(device, **stage, what).with_context(what.text());
    if (status.code() == StatusCode::unsupported)
      return report.did_not_run(kName, status.message());
    if (!status.ok()) return tell(report, kName, status, "");
  }
  tell(report, kName, Status(),
       fmt::format("two calls of {} ranks in one graph, three replays of each with other data",
                   ranks));
}

void check_abort(Device& device, const Extent& extent, Report& report) {
  constexpr const char* kName = "abort under load";
  const int ranks = some_ranks(extent);
  auto stage = Stage::make(on(device, ranks), extent.options);
  if (!stage.ok()) return tell(report, kName, stage.status(), "");
  Status status = (*stage)->set(large_sum(largest(extent)));
  // All make some calls; then the last rank stays away.
  for (int call = 0; call < 20 && status.ok(); ++call)
    for (Rank rank = 0; rank < ranks - (call < 10 ? 0 : 1) && status.ok(); ++rank)
      status = (*stage)->launch(rank);
  if (!status.ok()) return tell(report, kName, status, "");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto begin = Clock::now();
  std::thread aborter([&] { status = (*stage)->world().abort(); });
  aborter.join();
  if (status.ok() && !ends_soon(device, **stage))
    return report.failed(kName, "kernels were still there after 10 s");
  const double took = seconds_since(begin);
  for (Rank rank = 0; rank < ranks && status.ok(); ++rank) {
    const Status ended = (*stage)->world().rank(rank).failure();
    if (ended.code() != StatusCode::aborted)
      status = Status(StatusCode::internal, "not aborted: " + ended.to_string());
  }
  tell(report, kName, status,
       fmt::format("{} ranks; all had left after {:.1f} ms", ranks, 1000 * took));
}

void check_deadline(Device& device, const Extent& extent, Report& report) {
  constexpr const char* kName = "deadline";
  Extent hasty = extent;
  hasty.options.timeout = std::chrono::milliseconds(500);
  const int ranks = some_ranks(extent);
  auto stage = Stage::make(on(device, ranks), hasty.options);
  if (!stage.ok()) return tell(report, kName, stage.status(), "");
  Status status = (*stage)->set(large_sum(1000));
  for (Rank rank = 0; rank < ranks && status.ok(); ++rank)
    if (rank != 1) status = (*stage)->launch(rank);
  if (!status.ok()) return tell(report, kName, status, "");
  if (!ends_soon(device, **stage))
    return report.failed(kName, "kernels still waited 10 s after a deadline of 0.5 s");
  const Status ended = (*stage)->world().rank(0).failure();
  if (ended.code() != StatusCode::timeout || ended.culprit() != 1)
    return report.failed(kName, "rank 1 never came, but: " + ended.to_string());
  report.passed(kName, ended.to_string());
}

void check_refusal(Device& device, const Extent& extent, Report& report) {
  constexpr const char* kName = "refusal of what does not fit";
  const auto blocks = device.blocks_at_once(extent.options.threads);
  if (!blocks.ok()) return tell(report, kName, blocks.status(), "");
  GpuOptions wide = extent.options;
  wide.channels = runtime::gpu::kChannelsMax;
  const auto world = GpuWorld::make(on(device, *blocks / wide.channels + 1), wide);
  if (world.ok()) return report.failed(kName, "it was made");
  if (world.status().code() != StatusCode::unsupported)
    return report.failed(kName, world.status().to_string());
  report.passed(kName, world.status().message());
}

void check_devices(const std::vector<Device*>& devices, const Extent& extent, Report& report) {
  constexpr const char* kName = "ranks on several devices";
  if (devices.size() < 2) return report.did_not_run(kName, "there is one device");
  std::vector<Device*> seats = devices;
  seats.insert(seats.end(), devices.begin(), devices.end());  // two ranks on each
  auto stage = Stage::make(seats, extent.options);
  if (!stage.ok() && stage.status().code() == StatusCode::unsupported)
    return report.did_not_run(kName, stage.status().message());
  Status status = stage.ok() ? Status() : stage.status();
  int done = 0;
  for (const StageCase& what : cases_of(static_cast<int>(seats.size()), extent.counts, 31)) {
    if (!status.ok()) break;
    status = (*stage)->run(what).with_context(what.text());
    ++done;
  }
  tell(report, kName, status,
       fmt::format("{} cases of {} ranks on {} devices", done, seats.size(), devices.size()));
}

}  // namespace tutti::gpu_check

// measures.cc: see measures.hpp. A figure is the median of three; each of them is of many calls
// that follow each other, timed by events on rank 0's stream.
#include "gpu_check/measures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/try.hpp"
#include "collectives/contract.hpp"
#include "gpu_world/joint_graph.hpp"

namespace tutti::gpu_check {
namespace {

using runtime::gpu::Device;
using runtime::gpu::EventHandle;
using runtime::gpu::GpuCall;
using runtime::gpu::GpuOptions;
using runtime::gpu::GpuWorld;
using runtime::gpu::GraphHandle;
using runtime::gpu::StreamHandle;

constexpr int kRepeats = 3;
constexpr std::size_t kElement = 4;  // float32

std::string size_text(std::size_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

// Two events around something on a stream.
class Timer {
 public:
  explicit Timer(Device& device) : device_(device) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    for (const EventHandle event : events_)
      if (event != nullptr) device_.destroy_event(event);
  }

  // The median time of `enqueue`, after it was done once. Units: us.
  Result<double> median(StreamHandle stream, const std::function<Status()>& enqueue,
                        const std::function<Status()>& finish) {
    for (EventHandle& event : events_) {
      if (event != nullptr) continue;
      const auto made = device_.make_event();
      TUTTI_TRY(made);
      event = *made;
    }
    std::array<double, kRepeats> times{};
    for (int repeat = -1; repeat < kRepeats; ++repeat) {
      TUTTI_TRY(device_.record(events_[0], stream));
      TUTTI_TRY(enqueue());
      TUTTI_TRY(device_.record(events_[1], stream));
      TUTTI_TRY(finish());
      const auto time = device_.elapsed_us(events_[0], events_[1]);
      TUTTI_TRY(time);
      if (repeat >= 0) times[static_cast<std::size_t>(repeat)] = *time;
    }
    std::sort(times.begin(), times.end());
    return times[kRepeats / 2];
  }

 private:
  Device& device_;
  std::array<EventHandle, 2> events_{};
};

// A world on one device with buffers that nobody fills.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> make(Device& device, int ranks, std::size_t buffer_bytes,
                                             const GpuOptions& options) {
    std::unique_ptr<Bench> bench(new Bench(device));
    const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device);
    auto world = GpuWorld::make(devices, options);
    TUTTI_TRY(world);
    bench->world_ = *std::move(world);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto stream = device.make_stream();
      TUTTI_TRY(stream);
      bench->streams_.push_back(*stream);
      const auto memory = device.allocate(2 * buffer_bytes);
      TUTTI_TRY(memory);
      bench->memory_.push_back(*memory);
      TUTTI_TRY(device.zero(*memory, 2 * buffer_bytes));
    }
    bench->buffer_bytes_ = buffer_bytes;
    return bench;
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    world_.reset();
    for (std::byte* const memory : memory_) device_.deallocate(memory);
    for (const StreamHandle stream : streams_) device_.destroy_stream(stream);
  }

  int ranks() const { return world_->ranks(); }
  std::uint32_t channels() const { return world_->shape().channels; }

  // Each call's time, of so many that follow each other. Units: us.
  Result<double> launches(const GpuCall& call, int calls) {
    Timer timer(device_);
    const auto all = timer.median(
        streams_[0], [&] { return enqueue(call, calls); }, [&] { return finish(); });
    TUTTI_TRY(all);
    return *all / calls;
  }

  // The same by launching graphs that were captured of them.
  Result<double> replays(const GpuCall& call, int calls) {
    std::vector<GraphHandle> graphs;
    Status status = capture(call, calls, graphs);
    Timer timer(device_);
    Result<double> all = status;
    if (status.ok())
      all = timer.median(
          streams_[0], [&] { return replay(graphs); }, [&] { return finish(); });
    for (const GraphHandle graph : graphs) device_.destroy_graph(graph);
    TUTTI_TRY(all);
    return *all / calls;
  }

  // The same by launching one graph of the calls of all ranks.
  Result<double> joint_replays(const GpuCall& call, int calls) {
    const auto graph =
        runtime::gpu::capture_jointly(device_, streams_, [&] { return enqueue(call, calls); });
    TUTTI_TRY(graph);
    Timer timer(device_);
    const auto all = timer.median(
        streams_[0], [&] { return replay({*graph}); }, [&] { return finish(); });
    device_.destroy_graph(*graph);
    TUTTI_TRY(all);
    return *all / calls;
  }

 private:
  explicit Bench(Device& device) : device_(device) {}

  Status ask(int rank, GpuCall call) {
    const auto r = static_cast<std::size_t>(rank);
    call.input = memory_[r];
    call.output = memory_[r] + buffer_bytes_;
    return world_->rank(rank).call(call, streams_[r]);
  }
  Status enqueue(const GpuCall& call, int calls) {
    for (int n = 0; n < calls; ++n)
      for (int rank = 0; rank < ranks(); ++rank) TUTTI_TRY(ask(rank, call));
    return Status();
  }
  Status capture(const GpuCall& call, int calls, std::vector<GraphHandle>& graphs) {
    for (int rank = 0; rank < ranks(); ++rank) {
      const StreamHandle stream = streams_[static_cast<std::size_t>(rank)];
      TUTTI_TRY(device_.begin_capture(stream));
      Status status;
      for (int n = 0; n < calls && status.ok(); ++n) status = ask(rank, call);
      const auto graph = device_.end_capture(stream);
      TUTTI_TRY(status);
      TUTTI_TRY(graph);
      graphs.push_back(*graph);
    }
    return Status();
  }
  Status replay(const std::vector<GraphHandle>& graphs) {
    for (std::size_t rank = 0; rank < graphs.size(); ++rank)
      TUTTI_TRY(device_.replay(graphs[rank], streams_[rank]));
    return Status();
  }
  Status finish() {
    Status first;
    for (int rank = 0; rank < ranks(); ++rank)
      if (const Status status =
              world_->rank(rank).synchronize(streams_[static_cast<std::size_t>(rank)]);
          first.ok())
        first = status;
    return first;
  }

  Device& device_;
  std::unique_ptr<GpuWorld> world_;
  std::vector<StreamHandle> streams_;
  std::vector<std::byte*> memory_;
  std::size_t buffer_bytes_ = 0;
};

// A call whose larger buffer has about so many bytes, and the least that it must move.
struct Load {
  GpuCall call;
  double floor_bytes = 0;  // copied: what all ranks read and write, once, together by two
};

Load load_of(Collective collective, int ranks, std::size_t bytes) {
  ScheduleShape shape;
  shape.collective = collective;
  shape.ranks = ranks;
  const auto inputs = static_cast<std::size_t>(collectives::contract_chunks(shape, Buffer::input));
  const auto outputs =
      static_cast<std::size_t>(collectives::contract_chunks(shape, Buffer::output));
  Load load;
  load.call.collective = collective;
  load.call.count = std::max<std::size_t>(
      1, bytes / kElement / std::max<std::size_t>(1, std::max(inputs, outputs)));
  load.floor_bytes =
      static_cast<double>(load.call.count * kElement * (inputs + outputs)) * ranks / 2;
  return load;
}

int calls_for(const Measuring& extent, double moved_bytes) {
  const double wanted = static_cast<double>(extent.work_bytes) / std::max(1.0, moved_bytes);
  return std::max(3, static_cast<int>(std::min<double>(extent.calls_max, wanted)));
}

// A row: the time and the share for each collective.
Result<std::vector<std::string>> rates_row(Bench& bench, const Measuring& extent, std::size_t bytes,
                                           double copies) {
  std::vector<std::string> row{size_text(bytes)};
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::all_to_all}) {
    const Load load = load_of(collective, bench.ranks(), bytes);
    const auto time = bench.replays(load.call, calls_for(extent, load.floor_bytes));
    TUTTI_TRY(time);
    row.push_back(fmt::format("{:.1f}", *time));
    row.push_back(fmt::format("{:.3g}", load.floor_bytes / (*time * 1000) / copies));
  }
  return row;
}

Status measure_rates(Device& device, const Measuring& extent, double copies, Report& report) {
  for (const int ranks : extent.ranks) {
    const std::size_t most = *std::max_element(extent.bytes.begin(), extent.bytes.end());
    auto bench = Bench::make(device, ranks, most, extent.options);
    TUTTI_TRY(bench);
    Table table;
    table.title = fmt::format("{} ranks on one device", ranks);
    table.note = fmt::format(
        "float32, sum, {} channels a rank at most, replayed graphs. us: of a call. share: floor / "
        "us, where floor is the time in which the device copies as many bytes as all inputs and "
        "outputs of all ranks have, by two (a copy reads and writes). size: of the larger buffer "
        "of a rank.",
        (*bench)->channels());
    table.columns = {"size",          "all_reduce us", "share",
                     "all_gather us", "share",         "reduce_scatter us",
                     "share",         "all_to_all us", "share"};
    for (const std::size_t bytes : extent.bytes) {
      auto row = rates_row(**bench, extent, bytes, copies);
      TUTTI_TRY(row);
      table.rows.push_back(*std::move(row));
    }
    report.table(table);
  }
  return Status();
}

Status measure_latencies(Device& device, const Measuring& extent, Report& report) {
  Table table;
  table.title = "Small messages";
  table.note =
      "all_reduce of float32: us of a call, launched one by one from one thread for all "
      "ranks, as a replayed graph of each rank's, and as one graph of all ranks' calls.";
  table.columns = {"ranks", "size", "launches us", "replay us", "one graph us"};
  for (const int ranks : extent.ranks) {
    auto bench = Bench::make(device, ranks, 1 << 20, extent.options);
    TUTTI_TRY(bench);
    for (const std::size_t bytes : extent.latencies) {
      const Load load = load_of(Collective::all_reduce, ranks, bytes);
      const auto launched = (*bench)->launches(load.call, extent.calls_max);
      TUTTI_TRY(launched);
      const auto replayed = (*bench)->replays(load.call, extent.calls_max);
      TUTTI_TRY(replayed);
      const auto jointly = (*bench)->joint_replays(load.call, extent.calls_max);
      if (!jointly.ok() && jointly.status().code() != StatusCode::unsupported)
        return jointly.status();
      table.rows.push_back({std::to_string(ranks), size_text(bytes),
                            fmt::format("{:.2f}", *launched), fmt::format("{:.2f}", *replayed),
                            jointly.ok() ? fmt::format("{:.2f}", *jointly) : "-"});
    }
  }
  report.table(table);
  return Status();
}

// What one rank's blocks can do alone, by their number.
Status measure_kernels(Device& device, const Measuring& extent, double copies, Report& report) {
  Table table;
  table.title = "Kernels of one rank";
  table.note =
      "One rank alone copies (all_gather) and reduces (all_reduce) its input into its "
      "output: bytes per ns, and the share of what the device copies.";
  table.columns = {"channels", "copy", "share", "reduce", "share"};
  const std::size_t bytes = extent.bytes.back();
  for (const int channels : {1, 4, 16, 32}) {
    GpuOptions options = extent.options;
    options.channels = channels;
    auto bench = Bench::make(device, 1, bytes, options);
    if (!bench.ok() && bench.status().code() == StatusCode::unsupported) continue;
    TUTTI_TRY(bench);
    std::vector<std::string> row{std::to_string(channels)};
    for (const Collective collective : {Collective::all_gather, Collective::all_reduce}) {
      const Load load = load_of(collective, 1, bytes);
      const auto time = (*bench)->replays(load.call, calls_for(extent, load.floor_bytes));
      TUTTI_TRY(time);
      const double rate = load.floor_bytes / (*time * 1000);
      row.push_back(fmt::format("{:.4g}", rate));
      row.push_back(fmt::format("{:.3g}", rate / copies));
    }
    table.rows.push_back(std::move(row));
  }
  report.table(table);
  return Status();
}

// The ways of doing the same, so that the planner's choice can be judged.
Status measure_algorithms(Device& device, const Measuring& extent, Report& report) {
  const int ranks = extent.ranks.back();
  Table table;
  table.title = fmt::format("all_reduce of {} ranks by algorithm", ranks);
  table.note = "us of a call, replayed; queued: through slots only, nothing direct.";
  table.columns = {"algorithm"};
  const std::array<std::size_t, 3> sizes{
      extent.bytes.front(), extent.bytes[extent.bytes.size() / 2], extent.bytes.back()};
  for (const std::size_t bytes : sizes) table.columns.push_back(size_text(bytes));
  for (const char* const name : {"", "direct", "ring", "tree", "one_shot", "doubling", "queued"}) {
    GpuOptions options = extent.options;
    options.direct = std::string_view(name) != "queued";
    if (options.direct) options.algorithm = name;
    auto bench = Bench::make(device, ranks, sizes.back(), options);
    TUTTI_TRY(bench);
    std::vector<std::string> row{*name == '\0' ? "chosen" : name};
    for (const std::size_t bytes : sizes) {
      const Load load = load_of(Collective::all_reduce, ranks, bytes);
      const auto time = (*bench)->replays(load.call, calls_for(extent, load.floor_bytes));
      TUTTI_TRY(time);
      row.push_back(fmt::format("{:.1f}", *time));
    }
    table.rows.push_back(std::move(row));
  }
  report.table(table);
  return Status();
}

}  // namespace

Result<double> copy_rate(Device& device, std::size_t bytes) {
  constexpr int kCopies = 10;
  const auto memory = device.allocate(2 * bytes);
  TUTTI_TRY(memory);
  const auto stream = device.make_stream();
  TUTTI_TRY(stream);
  Timer timer(device);
  const auto time = timer.median(
      *stream,
      [&] {
        for (int n = 0; n < kCopies; ++n)
          TUTTI_TRY(device.copy(*memory + bytes, *memory, bytes, *stream));
        return Status();
      },
      [&] { return device.synchronize(*stream); });
  device.destroy_stream(*stream);
  device.deallocate(*memory);
  TUTTI_TRY(time);
  return static_cast<double>(bytes) * kCopies / (*time * 1000);
}

void measure(Device& device, const Measuring& extent, Report& report) {
  const auto copies = copy_rate(device, extent.copy_bytes);
  if (!copies.ok()) return report.failed("figures", copies.status().to_string());
  report.fact("device copies", fmt::format("{:.1f} bytes per ns (GB/s), of {} at a time", *copies,
                                           size_text(extent.copy_bytes)));
  Status status = measure_kernels(device, extent, *copies, report);
  if (status.ok()) status = measure_rates(device, extent, *copies, report);
  if (status.ok()) status = measure_latencies(device, extent, report);
  if (status.ok()) status = measure_algorithms(device, extent, report);
  if (status.ok())
    report.passed("figures", "measured; none is judged");
  else
    report.failed("figures", status.to_string());
}

}  // namespace tutti::gpu_check

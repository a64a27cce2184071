// reports.cc: see reports.hpp.
#include "training/trainer/reports.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "training/files/whole_file.hpp"
#include "training/report/memory_table.hpp"
#include "training/report/text.hpp"

namespace tutti::training {
namespace {

std::string part_of_trace(const std::string& path, int rank) {
  return fmt::format("{}.rank{}", path, rank);
}

}  // namespace

Reports::Reports(const RunConfig& run, Engine& engine)
    : run_(run), engine_(engine), shows_(engine.groups().world->rank() == 0) {}

Result<std::unique_ptr<Reports>> Reports::make(const RunConfig& run, Engine& engine,
                                               std::int64_t first_step) {
  std::unique_ptr<Reports> made(new Reports(run, engine));
  if (!run.log.trace.empty()) {
    made->trace_ = std::make_unique<Trace>(engine.groups().world->rank());
    Trace* const trace = made->trace_.get();
    engine.timeline().set_sink(
        [trace](Lane lane, const std::string& name, double begin_us, double end_us) {
          trace->add(lane == Lane::compute ? TraceLane::compute : TraceLane::communication, name,
                     static_cast<std::int64_t>(begin_us * 1e3),
                     static_cast<std::int64_t>(end_us * 1e3));
        });
  }
  if (!made->shows_) return made;
  made->progress_ =
      std::make_unique<Progress>(stdout, progress_options(stdout, run.train.steps, run.log.every));
  if (run.log.dir.empty()) return made;
  if (const Status status = make_folder(run.log.dir); !status.ok()) return status;
  if (run.log.jsonl) {
    auto writer = MetricsWriter::open(run.log.dir + "/metrics.jsonl");
    if (!writer.ok()) return writer.status();
    if (const Status status = writer->truncate_after(first_step - 1); !status.ok()) return status;
    made->metrics_ = std::move(*writer);
  }
  if (run.log.tensorboard) {
    auto writer = EventWriter::create(run.log.dir, wall_time_s());
    if (!writer.ok()) return writer.status();
    made->events_ = std::move(*writer);
  }
  return made;
}

Reports::~Reports() { engine_.timeline().set_sink({}); }

Status Reports::step(const StepMetrics& metrics) {
  if (!shows_) return {};
  progress_->update(metrics);
  if (metrics_)
    if (const Status status = metrics_->write(metrics); !status.ok()) return status;
  return events_ ? events_->write(wall_time_s(), metrics) : Status();
}

void Reports::note(const std::string& text) {
  if (shows_) progress_->note(text);
}

Status Reports::memory() {
  Communicator& world = *engine_.groups().world;
  const MemoryUse mine = memory_use(engine_.arena());
  std::vector<MemoryUse> all(static_cast<std::size_t>(world.size()));
  const Status status = world.all_gather(&mine, all.data(), sizeof(MemoryUse), DataType::uint8);
  if (status.ok()) note("memory of the ranks after the first step\n" + memory_table(all));
  return status;
}

// Each rank writes its own; then rank 0 makes one of them.
Status Reports::finish() {
  Communicator& world = *engine_.groups().world;
  if (progress_) progress_->finish();
  if (!trace_) return {};
  engine_.timeline().set_sink({});
  const Status written = trace_->write(part_of_trace(run_.log.trace, world.rank()));
  if (const Status status = world.barrier(); !status.ok()) return status;
  if (!written.ok() || !shows_) return written;
  std::vector<std::string> parts;
  for (int rank = 0; rank < world.size(); ++rank)
    parts.push_back(part_of_trace(run_.log.trace, rank));
  const Status merged = merge_traces(parts, run_.log.trace);
  for (const std::string& part : parts) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
  }
  return merged;
}

}  // namespace tutti::training

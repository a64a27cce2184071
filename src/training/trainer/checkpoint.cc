// checkpoint.cc: writing checkpoints; see checkpoint.hpp. Reading them is checkpoint_read.cc.
#include "training/trainer/checkpoint.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "training/architecture/names.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/safetensors.hpp"
#include "training/modules/part_runs.hpp"
#include "training/tensor/element.hpp"
#include "training/trainer/checkpoint_state.hpp"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

Extents extents_of(const Shape& shape) {
  Extents extents;
  for (std::size_t i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return extents;
}

// All weights of the model, whole: what each of a checkpoint's files has.
Result<SafetensorsLayout> whole_layout(const ModelConfig& config, DataType type) {
  std::vector<SafetensorsPlan> tensors;
  for (const NamedShape& named : parameter_shapes(config))
    tensors.push_back({named.name, type, extents_of(named.shape)});
  return SafetensorsLayout::make(std::move(tensors), {{"format", "pt"}});
}

// Agreement of all ranks: the worst of their outcomes, so that all go on or none.
Result<int> least(Communicator& world, int mine) {
  std::int32_t value = mine;
  const Status status = world.all_reduce(std::span<std::int32_t>(&value, 1), ReduceOp::min);
  if (!status.ok()) return status.with_context("checkpoint");
  return value;
}

Status failed_elsewhere() {
  return Status(StatusCode::internal, "the checkpoint could not be written by another rank");
}

}  // namespace

// One checkpoint on its way to the disk.
struct CheckpointWriter::Writing {
  // Bytes of one tensor of one file.
  struct Piece {
    std::size_t file;
    std::string name;
    std::uint64_t at;
    std::size_t begin, bytes;  // in `copied`
  };

  CheckpointState state;
  std::string folder;  // the final one
  std::vector<SafetensorsOutput> files;
  std::vector<Piece> pieces;
  std::vector<std::byte> copied;
  std::thread thread;
  std::atomic<int> outcome{0};  // 1: done; -1: failed
  Status failure;               // of a thread that failed; read after its outcome

  ~Writing() {
    if (thread.joinable()) thread.join();
  }

  void copy(std::size_t file, const MasterPlace& place, const Tensor& values) {
    const std::size_t each = size_of(values.type());
    for_each_run(
        *place.parameter, place.begin, place.begin + values.count(), [&](const PartRun& run) {
          const auto from = static_cast<std::size_t>(run.in_part - place.begin) * each;
          const auto bytes = static_cast<std::size_t>(run.length) * each;
          pieces.push_back({file, place.parameter->name,
                            static_cast<std::uint64_t>(run.in_whole) * each, copied.size(), bytes});
          copied.insert(copied.end(), values.data() + from, values.data() + from + bytes);
        });
  }

  Status write() {
    for (const Piece& piece : pieces) {
      const std::span<const std::byte> bytes(copied.data() + piece.begin, piece.bytes);
      const Status status = files[piece.file].write(piece.name, piece.at, bytes);
      if (!status.ok()) return status;
    }
    for (SafetensorsOutput& file : files)
      if (const Status status = file.sync(); !status.ok()) return status;
    return {};
  }
};

CheckpointWriter::CheckpointWriter(Engine& engine, CheckpointOptions options)
    : engine_(engine), options_(std::move(options)) {}

CheckpointWriter::~CheckpointWriter() = default;

Status CheckpointWriter::begin(const CheckpointState& state) {
  if (const Status status = finish(); !status.ok()) return status;
  Communicator& world = *engine_.groups().world;
  Result<std::unique_ptr<Writing>> made = Status(StatusCode::internal, "another rank prepares");
  if (world.rank() == 0) made = prepare(state);
  auto prepared = least(world, world.rank() != 0 || made.ok() ? 1 : -1);
  if (!prepared.ok()) return prepared.status();
  if (*prepared < 0) return world.rank() == 0 ? made.status() : failed_elsewhere();
  if (world.rank() != 0) made = prepare(state);
  auto joined = least(world, made.ok() ? 1 : -1);
  if (!joined.ok()) return joined.status();
  if (*joined < 0) return made.ok() ? failed_elsewhere() : made.status();

  writing_ = std::move(*made);
  engine_.visit_masters([&](const MasterPlace& place) {
    if (!place.answers) return;
    writing_->copy(0, place, place.value);
    for (std::size_t i = 0; i < place.moments.size(); ++i)
      writing_->copy(1 + i, place, place.moments[i]);
  });
  Writing& writing = *writing_;
  writing.thread = std::thread([&writing] {
    writing.failure = writing.write();
    writing.outcome = writing.failure.ok() ? 1 : -1;
  });
  return options_.async ? Status() : finish();
}

// Rank 0 creates the files, the others join in.
Result<std::unique_ptr<CheckpointWriter::Writing>> CheckpointWriter::prepare(
    const CheckpointState& state) {
  auto writing = std::make_unique<Writing>();
  writing->state = state;
  writing->folder = fmt::format("{}/step-{:08}", options_.folder, state.step);
  const std::string making = writing->folder + ".tmp";
  const bool first = engine_.groups().world->rank() == 0;
  if (first) {
    std::error_code ignored;
    fs::remove_all(making, ignored);  // what a run that died had begun
    if (const Status status = make_folder(making); !status.ok()) return status;
  }
  const DataType type = wide_type(engine_.options().type);
  for (int file = 0; file <= state.moments; ++file) {
    const std::string path = making + "/" + checkpoint_file(file);
    auto layout = whole_layout(engine_.options().model, type);
    if (!layout.ok()) return layout.status();
    auto output = first ? SafetensorsOutput::create(path, std::move(*layout))
                        : SafetensorsOutput::join(path, std::move(*layout));
    if (!output.ok()) return output.status();
    writing->files.push_back(std::move(*output));
  }
  return writing;
}

Status CheckpointWriter::poll() {
  if (!writing_) return {};
  auto outcome = least(*engine_.groups().world, writing_->outcome.load());
  if (!outcome.ok()) return outcome.status();
  if (*outcome == 0) return {};
  if (writing_->thread.joinable()) writing_->thread.join();
  if (*outcome > 0) return complete();
  const Status mine = writing_->failure;
  writing_.reset();
  return mine.ok() ? failed_elsewhere() : mine.with_context("checkpoint");
}

Status CheckpointWriter::finish() {
  if (!writing_) return {};
  if (writing_->thread.joinable()) writing_->thread.join();
  return poll();
}

// All ranks' bytes are on the disk: rank 0 gives the files and the folder their names.
Status CheckpointWriter::complete() {
  const std::unique_ptr<Writing> done = std::move(writing_);
  Communicator& world = *engine_.groups().world;
  Status status;
  if (world.rank() == 0) {
    const std::string making = done->folder + ".tmp";
    for (SafetensorsOutput& file : done->files)
      if (status.ok()) status = file.commit();
    const ModelConfig& model = engine_.options().model;
    const bool wide = wide_type(engine_.options().type) == DataType::float64;
    if (status.ok())
      status = write_text_file(making + "/config.json",
                               model_config_json(model, wide ? "float64" : "float32"));
    if (status.ok()) status = write_text_file(making + "/run.toml", options_.run_toml);
    if (status.ok())
      status = write_text_file(making + "/state.json", checkpoint_state_json(done->state));
    std::error_code ignored;
    if (status.ok()) status = replace_folder_durably(making, done->folder);
    if (status.ok()) fs::remove_all(making, ignored);  // an older one of the same step
    if (status.ok()) remove_old_checkpoints(options_.folder, options_.keep, done->state.step);
  }
  auto worst = least(world, status.ok() ? 1 : -1);
  if (!worst.ok()) return worst.status();
  if (*worst < 0) return status.ok() ? failed_elsewhere() : status.with_context("checkpoint");
  newest_ = done->folder;
  return {};
}

}  // namespace tutti::training

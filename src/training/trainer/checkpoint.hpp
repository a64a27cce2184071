// checkpoint.hpp: a run's state on disk, in a form that knows nothing of the layout which wrote it:
// every weight is whole, in one file that all ranks write their parts of. So any layout reads any
// checkpoint, and a Llama's or Mixtral's weights open elsewhere as they are.
//
//   DIR/step-00000050/model.safetensors     weights, as wide as the optimizer has them
//                     moment_1.safetensors  the optimizer's memory, by the weights' names
//                     moment_2.safetensors
//                     state.json            the step, the optimizer's counters, the layout
//                     config.json           the model
//                     run.toml              the run
//
// A checkpoint is complete or is not there: it is written as DIR/step-00000050.tmp and renamed when
// all of it is on the disk. Writing goes on while training does: begin() copies what is to be
// written, a thread writes it.
//
// Knows engines' masters; does not know what a step is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/engine/engine.hpp"
#include "training/tensor/shape.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// What a checkpoint says of itself.
struct CheckpointState {
  std::int64_t step = 0;             // steps of the run that are done
  std::int64_t optimizer_steps = 0;  // of those, not skipped
  LossScaler::State loss_scaler;
  std::string layout;  // for people: "pp 1 x dp_replicate 1 x dp_shard 2 x tp 1 = 2"
  std::string type;    // what it was computed in
  std::string optimizer = "adamw";
  int moments = 2;  // files of the optimizer's memory

  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
};

struct CheckpointOptions {
  std::string folder;
  std::int64_t keep = 2;  // complete ones, the newest; 0: all
  bool async = true;
  std::string run_toml;  // kept beside it
};

// Writes checkpoints of one engine. All ranks make the same calls.
//
// Lifetime  of the engine: longer. The destructor waits for what is being written.
// Errors    system_error with the path, on the rank that had it; on the others internal, naming no
//           path. A checkpoint that failed leaves the ones before it alone.
class CheckpointWriter {
 public:
  CheckpointWriter(Engine& engine, CheckpointOptions options);
  ~CheckpointWriter();

  // Copies what is to be written, and starts writing it; finishes one that is still being written
  // before. Not async: is done when it returns.
  Status begin(const CheckpointState& state);

  // Completes what has been written meanwhile. To be called once a step. Does not block but for a
  // small exchange, and for none when nothing is being written.
  Status poll();

  // Blocks until nothing is being written.
  Status finish();

  // The newest complete one of this writer, or empty.
  const std::string& newest() const { return newest_; }

 private:
  struct Writing;

  Result<std::unique_ptr<Writing>> prepare(const CheckpointState& state);
  Status complete();

  Engine& engine_;
  CheckpointOptions options_;
  std::unique_ptr<Writing> writing_;
  std::string newest_;
};

// The newest complete checkpoint of a folder; empty: there is none.
std::string newest_checkpoint(const std::string& folder);

// The complete checkpoints of a folder, the oldest first.
std::vector<std::string> list_checkpoints(const std::string& folder);

// Errors  system_error; corrupt_data, naming file and key.
Result<CheckpointState> read_checkpoint_state(const std::string& checkpoint);

// Fills the engine's masters and moments, whatever layout wrote them, and sets its counters. Each
// rank reads just its parts.
// Errors  system_error; corrupt_data: a weight that is missing, has other extents or is none of the
//         model's; invalid_argument: the optimizer's memory is another optimizer's.
Result<CheckpointState> load_checkpoint(const std::string& checkpoint, Engine& engine);

}  // namespace tutti::training

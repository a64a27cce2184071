// trainer.hpp: a training run from beginning to end, as one rank lives it: data, steps, reports,
// checkpoints, evaluation, and a proper end when somebody presses Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "training/trainer/run_config.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

// How a run ended. The values are what `tutti train` exits with.
enum class Ending : int {
  complete = 0,
  failed = 1,     // files, memory
  refused = 2,    // what it was told cannot be
  lost = 3,       // a rank died, or a deadline passed
  diverged = 4,   // the loss or the gradient is no number
  stopped = 130,  // Ctrl-C; a checkpoint was written where there is a folder for them
};

struct RunOutcome {
  Ending ending = Ending::complete;
  Status status;  // ok where complete or stopped
  std::int64_t steps = 0;
  double loss = 0;             // of the last step
  double validation_loss = 0;  // of all that was held out, at the end; 0: not asked for
};

// Trains as told. Collective over `world`; rank 0 reports on standard output.
// `stop`, where not null, ends the run after the step that is being made.
RunOutcome train(const RunConfig& run, Communicator& world,
                 const std::atomic<bool>* stop = nullptr);

// What a Status means for a run's end.
Ending ending_of(const Status& status);

}  // namespace tutti::training

// setup.hpp: from what a run was told to what an engine is made with.
#pragma once

#include "training/architecture/config.hpp"
#include "training/engine/engine.hpp"
#include "training/trainer/run_config.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

// The preset's, or the config.json's of the folder.
Result<ModelConfig> model_of(const RunConfig& run);

// Errors  invalid_argument: degrees that do not make up the world, a batch that does not divide.
Result<EngineOptions> engine_options(const RunConfig& run, const ModelConfig& model, int world);

CommunicatorOptions communicator_options(const RunConfig& run);

// How many ranks the degrees multiply to, where none of them is "the rest".
// Errors  invalid_argument, naming the degree that is.
Result<int> ranks_of(const RunConfig& run);

}  // namespace tutti::training

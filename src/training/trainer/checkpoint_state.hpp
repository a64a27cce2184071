// checkpoint_state.hpp: what a checkpoint is made of besides tensors: its files' names, its
// state.json, and which of a folder's checkpoints there are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "training/trainer/checkpoint.hpp"

namespace tutti::training {

// 0: the weights; 1 and 2: the optimizer's moments.
std::string checkpoint_file(int number);

std::string optimizer_name(OptimizerKind kind);  // as in run.toml

std::string checkpoint_state_json(const CheckpointState& state);
// Errors  corrupt_data, naming the key.
Result<CheckpointState> parse_checkpoint_state(std::string_view json);

// All but the newest `keep` of those up to step `last`; 0 removes none. Those of later steps are of
// another run, whose folder this was, and stay, as does what cannot be removed.
void remove_old_checkpoints(const std::string& folder, std::int64_t keep, std::int64_t last);

}  // namespace tutti::training

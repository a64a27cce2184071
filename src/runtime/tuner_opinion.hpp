// tuner_opinion.hpp: what a tuner plugin is told of a call, and what its answer means for us. Pure:
// the same explanation and answer give the same plan on every rank.
//
// NCCL's plugins think in seven algorithms times three protocols. Ours that are like one of theirs
// have a row: tree, ring, and what goes in log(p) steps of growing blocks (PAT). Protocols are
// about how GPUs see that data has come; here all three of a row cost the same, so that a plugin
// that names any of them is understood. The rest of the table says "not available", and our
// algorithms without a row compete at the price that the planner gave them.
//
// Knows the planner's explanations; does not know libraries (tuner_plugin.hpp).
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "collectives/planner.hpp"
#include "collectives/tuning.hpp"
#include "runtime/tuner_abi.hpp"

namespace tutti::runtime {

// Microseconds, by algorithm and protocol.
using CostTable = std::array<std::array<float, tuner_abi::kProtocols>, tuner_abi::kAlgorithms>;
static_assert(sizeof(CostTable) == sizeof(float) * tuner_abi::kProtocols * tuner_abi::kAlgorithms);

// What a tuner makes of a call.
struct TunerAnswer {
  CostTable costs{};
  int channels = 0;  // 0: nothing
};

// How the interface numbers it; nothing for those that tuners are not asked about.
std::optional<tuner_abi::Function> tuner_function(Collective collective);

// The row of one of our algorithms; nothing when it has none.
std::optional<int> tuner_row(Collective collective, std::string_view algorithm);

CostTable cost_table(const collectives::Explanation& explanation);

// The answer of version 2, which names a choice (-1: none), as one of the others.
TunerAnswer named_answer(const CostTable& costs, int algorithm, int protocol, int channels);

// The way that the answer asks for, or nothing: the planner decides. A table that came back as it
// went, and entries of what is not available, are no opinion. More channels than `channels_max` are
// as many as there are; 0 of them: their number is not the tuner's business.
std::optional<collectives::TunedChoice> opinion(const collectives::Explanation& explanation,
                                                const TunerAnswer& answer, int channels_max);

}  // namespace tutti::runtime

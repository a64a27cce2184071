// peak.hpp: how fast this rank multiplies matrices when it does nothing else: what utilisation is
// measured against.
#pragma once

#include <cstdint>

#include "training/architecture/config.hpp"
#include "training/engine/engine.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

// The mean over ranks, all at the same time, of the best of several products of square matrices of
// the run's type. Units  operations a second. Collective. Cost  about 0.1 s.
Result<double> measured_peak(Engine& engine, Communicator& world);

// That a token is multiplied with: of experts only those it is routed to, and not the embedding,
// which is looked up.
std::int64_t count_active_parameters(const ModelConfig& model);

}  // namespace tutti::training

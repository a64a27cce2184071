// telling.hpp: what a launch found, as lines of JSON: one about the launch, one per size. They are
// read by launching.py.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "perf/comparison/peer.hpp"
#include "perf/comparison/stage.hpp"

namespace tutti::comparison {

void tell_launch(std::FILE* report, const Peer& peer, const Stage& stage);

// Requires  times are sorted and not empty.
void tell_work(std::FILE* report, const Work& work, const std::string& way,
               const std::vector<Nanoseconds>& times, std::size_t wrong);

void tell_unable(std::FILE* report, Operation operation, Type type, const std::string& reason);

double at_quantile_us(const std::vector<Nanoseconds>& sorted, double quantile);

}  // namespace tutti::comparison

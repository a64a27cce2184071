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

// What was measured of one work.
struct Times {
  std::vector<Nanoseconds> calls;  // one per call or per batch of calls, sorted
  std::size_t batch = 1;           // calls in a batch
  std::size_t quiet = 0;           // of the calls or batches, those beside which nothing else ran
  std::string way;
  // Of a cache line between two of the ranks' cores, before and after; 0 where it is not known.
  Nanoseconds line_before = 0;
  Nanoseconds line_after = 0;
};

// Requires  there is a time.
void tell_work(std::FILE* report, const Work& work, const Times& times, std::size_t wrong);

void tell_unable(std::FILE* report, Operation operation, Type type, const std::string& reason);

double at_quantile_us(const std::vector<Nanoseconds>& sorted, double quantile);

}  // namespace tutti::comparison

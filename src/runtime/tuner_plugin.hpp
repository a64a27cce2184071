// tuner_plugin.hpp: finds a tuner plugin by the names that NCCL's users know, asks it about calls,
// and plans what it wants.
//
// All ranks must get the same answers. That they have the same plugin is compared when the
// communicator is made (the names are among the settings that ranks show each other); a plugin that
// answers differently all the same is found at the call, as a mismatch, because the plan is part of
// a call's signature. Knows the planner; does not know transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "collectives/planner.hpp"
#include "runtime/tuner_opinion.hpp"

namespace tutti::runtime {

// The ranks that a tuner is told of.
struct TunerWorld {
  std::uint64_t communicator = 0;
  int ranks = 1;
  int nodes = 1;
  int node_ranks_min = 1;
  int node_ranks_max = 1;
};

// One communicator's tuner.
//
// Threading  one thread at a time.
class Tuner {
 public:
  virtual ~Tuner() = default;

  // Errors  unsupported: the plugin returned an error; then the planner decides.
  virtual Result<TunerAnswer> ask(tuner_abi::Function function, std::size_t bytes,
                                  const CostTable& costs) = 0;
};

// A tuner that was found and not begun yet.
class TunerPlugin {
 public:
  virtual ~TunerPlugin() = default;

  // "name v5", for settings and texts.
  virtual std::string name() const = 0;
  // Errors  unsupported: it cannot be initialised.
  virtual Result<std::unique_ptr<Tuner>> begin(const TunerWorld& world) const = 0;
};

// The tuner that NCCL_TUNER_PLUGIN names ("none": none). Without it, where a net plugin is used,
// that of the first library of NCCL_NET_PLUGIN that has one. Null: there is none. A library stays
// open as long as the process. Errors  unsupported: what is named cannot be used, with what was
// tried.
Result<std::unique_ptr<TunerPlugin>> find_tuner(const base::Environment& environment,
                                                bool net_plugin, base::LogLevel log);

// The plans of a communicator that has a tuner.
//
// Threading  one thread at a time.
class TunedPlanner {
 public:
  // `channels_max`: that a plan may have; 0: the tuner has no say in them.
  TunedPlanner(std::unique_ptr<Tuner> tuner, int channels_max)
      : tuner_(std::move(tuner)), channels_max_(channels_max) {}

  // The plan that the tuner wants, where it wants one that can be had; else the planner's.
  Result<std::shared_ptr<const collectives::Plan>> plan(collectives::Planner& planner,
                                                        const collectives::PlanQuery& query,
                                                        Rank rank);

  // What is kept of plans, without their programs, which are the planner's. An estimate.
  std::size_t memory_bytes() const;

 private:
  using Key =
      std::tuple<Collective, std::size_t, DataType, Rank, collectives::ReductionForm, std::size_t>;

  Result<std::shared_ptr<const collectives::Plan>> make(collectives::Planner& planner,
                                                        const collectives::PlanQuery& query,
                                                        tuner_abi::Function function, Rank rank);

  std::unique_ptr<Tuner> tuner_;
  int channels_max_;
  std::map<Key, std::shared_ptr<const collectives::Plan>> plans_;
};

}  // namespace tutti::runtime

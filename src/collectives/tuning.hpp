// tuning.hpp: what was measured on one machine, as a value and as a text that people can edit: the
// model's numbers for each transport, and for each place (transport, ranks, cores) which algorithm
// serves from which size on, with the times that say so.
//
// `tutti tune` writes such a text, the runtime reads it, the planner goes by it. Only numbers and
// names: whether an algorithm of that name exists and can serve is for the planner to find out.
//
//   tutti-tuning 1
//   machine x86_64, AMD EPYC, 2 processors
//   transport shm latency_ns=62 bandwidth=11.5 send_ns=60 receive_ns=60
//   place shm ranks=2 cores=2 direct=yes
//   use all_reduce from=0 algorithm=doubling lowering=staged channels=1 slice=128KiB
//   use all_reduce from=48KiB algorithm=direct lowering=direct channels=1 slice=128KiB
//   use all_reduce from=1MiB algorithm=model
//   time all_reduce size=8 algorithm=doubling lowering=staged channels=1 slice=128KiB us=0.8
//
// Empty lines and lines that begin with # are skipped. `use` and `time` belong to the place above
// them. Sizes are what nccl-tests call size: the larger of a call's two buffers.
//
// Knows nothing of files: where tables lie is the runtime's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost.hpp"
#include "collectives/plan.hpp"
#include "tutti/types.hpp"

namespace tutti::collectives {

// The model's numbers that were measured for a transport; the others keep their defaults.
struct TransportFigures {
  std::string transport;  // "memory", "shm", "tcp"
  // Of the link between a rank's core and what carries its messages: memory, or the network.
  std::optional<double> latency_ns;
  std::optional<double> bandwidth;  // bytes per ns
  // As in MessageOverhead and CostConstants.
  std::optional<double> send_ns;
  std::optional<double> receive_ns;
  std::optional<double> signal_ns;
  std::optional<double> payload_ns;
  std::optional<double> step_ns;
  std::optional<double> switch_ns;

  friend bool operator==(const TransportFigures&, const TransportFigures&) = default;
};

// The numbers of such a line, in the order in which they are written.
struct FigureField {
  std::string_view name;
  std::optional<double> TransportFigures::*value;
  double lowest;
  double highest;
};
const std::vector<FigureField>& figure_fields();

// A way of doing a collective that somebody measured or wants.
struct TunedChoice {
  std::string algorithm;  // empty: the model chooses
  PlanSettings settings;

  friend bool operator==(const TunedChoice&, const TunedChoice&) = default;
};

// From this size on, until the next one of the same collective.
struct TunedUse {
  Collective collective = Collective::all_reduce;
  std::size_t from_bytes = 0;
  TunedChoice choice;

  friend bool operator==(const TunedUse&, const TunedUse&) = default;
};

struct TunedTime {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;
  TunedChoice choice;
  double us = 0;                   // buffers that peers can address, where there are such
  std::optional<double> plain_us;  // the same with other buffers

  friend bool operator==(const TunedTime&, const TunedTime&) = default;
};

// Where measurements hold: so many ranks on so many cores of one host.
struct TuningKey {
  std::string transport;
  int ranks = 0;
  int cores = 0;
  bool direct = false;  // ranks can address each other's memory

  friend bool operator==(const TuningKey&, const TuningKey&) = default;
};

struct TuningPlace {
  TuningKey key;
  std::vector<TunedUse> uses;    // by collective, then ascending
  std::vector<TunedTime> times;  // in the order of the text

  friend bool operator==(const TuningPlace&, const TuningPlace&) = default;
};

struct TuningTable {
  std::string machine;  // where it was measured (base/machine.hpp)
  std::vector<TransportFigures> transports;
  std::vector<TuningPlace> places;

  // Null where nothing was measured.
  const TransportFigures* figures(std::string_view transport) const;
  const TuningPlace* place(const TuningKey& key) const;

  friend bool operator==(const TuningTable&, const TuningTable&) = default;
};

// What to use for a call of this size; null where the table says nothing.
const TunedUse* use_for(const TuningPlace& place, Collective collective, std::size_t bytes);

// How long an algorithm took in one lowering, with the best channels and slices that were tried.
// Between two sizes that were measured: on the straight line between them, both scales logarithmic.
struct MeasuredTime {
  double us = 0;
  bool exact = false;  // this size was measured
};
std::optional<MeasuredTime> measured_time(const TuningPlace& place, Collective collective,
                                          std::size_t bytes, std::string_view algorithm,
                                          bool direct);

// The model's constants with what was measured for the transport.
CostConstants with_figures(CostConstants constants, const TransportFigures& figures);

// Ensures  tuning_from_text gives an equal value.
std::string to_text(const TuningTable& table);
// Errors  corrupt_data, with the number of the line and the word. Safe on any input.
Result<TuningTable> tuning_from_text(std::string_view text);

// Equal for equal tables: what ranks compare. Never 0.
std::uint64_t tuning_hash(const TuningTable& table);

}  // namespace tutti::collectives

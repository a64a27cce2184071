// config.hpp: every TUTTI_* variable, read once into one plain struct.
//
// One table (config_variables) holds each variable's name, allowed values, default and meaning;
// reading, listing (`tutti env`) and error texts all come from it. A TUTTI_* name that is not in
// the table is an error, because a misspelt setting that is silently ignored costs days.
//
// Knows nothing of what the settings do. Who this process is in the world (RANK, ...) is
// environment.hpp's.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "tutti/status.hpp"

namespace tutti::base {

// `automatic` is written "auto".
enum class TransportChoice { automatic, memory, shm, tcp, ucx, net_plugin };
enum class LoweringChoice { automatic, direct, staged };
enum class ReduceOrder { any, rank_tree };
enum class WaitChoice { automatic, spin, yield, block };
enum class CheckChoice { late, strict };  // `late`: on this or the next call
enum class FlightChoice { off, on, verbose };
enum class ProgressChoice { automatic, off };
// What network cards do by themselves in the memory of GPUs. `receive`: they only write it.
enum class GpuDirectChoice { automatic, off, receive, on };

std::string_view to_string(TransportChoice choice);
std::string_view to_string(LoweringChoice choice);
std::string_view to_string(ReduceOrder order);
std::string_view to_string(WaitChoice choice);
std::string_view to_string(GpuDirectChoice choice);

// The inverse of to_string; empty text is the default. Errors: invalid_argument, listing the names.
Result<TransportChoice> parse_transport_choice(std::string_view text);
Result<LoweringChoice> parse_lowering_choice(std::string_view text);
Result<ReduceOrder> parse_reduce_order(std::string_view text);
Result<WaitChoice> parse_wait_choice(std::string_view text);
Result<LogLevel> parse_log_level(std::string_view text);

// The settings of one process. Every default is right for most jobs; what each field means stands
// in the table (config.cc), next to its variable.
struct Config {
  TransportChoice transport = TransportChoice::automatic;
  std::string algorithm;  // empty: the planner chooses
  LoweringChoice lowering = LoweringChoice::automatic;
  int channels = 0;             // 0: the planner chooses
  std::size_t slice_bytes = 0;  // 0: the planner chooses
  ReduceOrder reduce_order = ReduceOrder::any;
  WaitChoice wait = WaitChoice::automatic;
  ProgressChoice progress = ProgressChoice::automatic;
  bool checksums = false;
  bool share_heap = false;
  bool attach = true;
  bool gpu_kernels = true;
  bool gpu_copy_engines = false;
  GpuDirectChoice gpu_direct = GpuDirectChoice::automatic;
  CheckChoice check = CheckChoice::late;
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds setup_timeout{30'000};
  LogLevel log = LogLevel::warn;
  FlightChoice flight = FlightChoice::on;
  std::chrono::milliseconds slow_after{2000};  // 0: never
  std::string socket_interface;                // empty: the one that reaches MASTER_ADDR
  std::string job_secret_file;                 // empty: none given
  std::string job_secret;   // the bytes, already decoded from hexadecimal; empty: none given
  std::string job_board;    // path; empty: none
  std::string tuning_file;  // "off": none; empty: where `tutti tune` writes it
  std::string test_data;    // empty: none

  friend bool operator==(const Config&, const Config&) = default;
};

// One row of the table.
struct ConfigVariable {
  std::string_view name;          // "TUTTI_CHANNELS"
  std::string_view allowed;       // what a value looks like: "auto|memory|shm|tcp", "0..64"
  std::string_view default_text;  // as the user would write it; empty: nothing
  std::string_view help;          // one sentence
  bool secret;                    // never print its value
  Status (*read)(std::string_view value, Config& config);
};

// The table, in the order in which people should read it.
std::span<const ConfigVariable> config_variables();

// Reads all TUTTI_* variables of `environment`; empty values count as not set.
//
// Errors  invalid_argument: an unknown TUTTI_* name (with the nearest known one), or a bad value
//         (with the variable, the value and what is allowed).
Result<Config> parse_config(const Environment& environment);

}  // namespace tutti::base

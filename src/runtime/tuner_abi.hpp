// tuner_abi.hpp: the tables of functions that NCCL's tuner plugins export, versions 2 to 5, as far
// as bytes and calls go.
//
// Layouts are facts; the names of the fields are our own. Knows nothing of how plugins are found or
// what becomes of their answers (tuner_plugin.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/net_plugin/abi.hpp"

namespace tutti::runtime::tuner_abi {

using transport::net_plugin::abi::Logger;
using transport::net_plugin::abi::ReturnCode;

inline constexpr int kAlgorithms = 7;
inline constexpr int kProtocols = 3;
// Rows of the cost table for which there is an algorithm of ours.
inline constexpr int kTree = 0;
inline constexpr int kRing = 1;
inline constexpr int kPat = 6;
inline constexpr float kNotAvailable = -1;

// How the interface numbers collectives.
enum Function : int { broadcast, reduce, all_gather, reduce_scatter, all_reduce };

// Domains of GPUs that an NVLink network joins; a host counts as one.
struct LinkDomains {
  int count;
  int ranks_min;
  int ranks_max;
};

// The numbers of NCCL's model, which a plugin may change; ours has others.
struct ModelConstants {
  double base_latencies[kAlgorithms][kProtocols];
  double link_latencies[3][kAlgorithms][kProtocols];
  double bandwidths[5][4][3];
};
static_assert(sizeof(ModelConstants) == 144 * sizeof(double));

struct TunerV2 {
  static constexpr int kVersion = 2;
  static constexpr const char* kSymbol = "ncclTunerPlugin_v2";

  const char* name;
  ReturnCode (*init)(std::size_t ranks, std::size_t nodes, Logger logger, void** context);
  ReturnCode (*choose)(void* context, Function function, std::size_t bytes, int collnet_supported,
                       int nvls_supported, int operations, int* algorithm, int* protocol,
                       int* channels);
  ReturnCode (*destroy)(void* context);
};

// `costs` of this and later versions points at the first of kAlgorithms rows of kProtocols floats,
// one behind the other, whatever its type says.
struct TunerV3 {
  static constexpr int kVersion = 3;
  static constexpr const char* kSymbol = "ncclTunerPlugin_v3";

  const char* name;
  ReturnCode (*init)(std::size_t ranks, std::size_t nodes, Logger logger, void** context);
  ReturnCode (*choose)(void* context, Function function, std::size_t bytes, int operations,
                       float** costs, int algorithms, int protocols, int* channels);
  ReturnCode (*destroy)(void* context);
};

struct TunerV4 {
  static constexpr int kVersion = 4;
  static constexpr const char* kSymbol = "ncclTunerPlugin_v4";

  const char* name;
  ReturnCode (*init)(std::size_t ranks, std::size_t nodes, Logger logger, void** context);
  ReturnCode (*choose)(void* context, Function function, std::size_t bytes, int operations,
                       float** costs, int algorithms, int protocols, int buffers_registered,
                       int* channels);
  ReturnCode (*destroy)(void* context);
};

struct TunerV5 {
  static constexpr int kVersion = 5;
  static constexpr const char* kSymbol = "ncclTunerPlugin_v5";

  const char* name;
  ReturnCode (*init)(void** context, std::uint64_t communicator, std::size_t ranks,
                     std::size_t nodes, Logger logger, LinkDomains* domains,
                     ModelConstants* constants);
  ReturnCode (*choose)(void* context, Function function, std::size_t bytes, int operations,
                       float** costs, int algorithms, int protocols, int buffers_registered,
                       int* channels);
  ReturnCode (*destroy)(void* context);
};

}  // namespace tutti::runtime::tuner_abi

// tuner.cc: a tuner plugin for tests, in the version that KIT_TUNER_VERSION names. What it wants is
// told by environment variables, read at every call; without them it wants nothing.
//   KIT_TUNER_ALGORITHM   row of the cost table that it makes free: 0 tree, 1 ring, 6 PAT
//   KIT_TUNER_PROTOCOL    in this column; 2 without it
//   KIT_TUNER_CHANNELS    so many channels
//   KIT_TUNER_FAIL        1: fails at every call; 2: cannot be initialised
// It asks for what is due: collectives and sizes that make sense, and a table of the right shape.
#include <cstdlib>

#include "runtime/tuner_abi.hpp"

namespace kit::tuner {
namespace {

namespace abi = tutti::runtime::tuner_abi;

constexpr int kInvalidUsage = 5;

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::atoi(text);
}

int begin(std::size_t ranks, std::size_t nodes, abi::Logger logger, void** context) {
  if (ranks < nodes || nodes < 1 || logger == nullptr) return kInvalidUsage;
  if (number_of("KIT_TUNER_FAIL", 0) == 2) return kInvalidUsage;
  *context = new int(static_cast<int>(ranks));
  return 0;
}

int end(void* context) {
  delete static_cast<int*>(context);
  return 0;
}

// Whether the call makes sense.
bool plausible(const void* context, abi::Function function, std::size_t bytes, int operations) {
  return context != nullptr && function >= abi::broadcast && function <= abi::all_reduce &&
         bytes > 0 && operations == 1 && number_of("KIT_TUNER_FAIL", 0) == 0;
}

[[maybe_unused]] int fill(float** costs, int algorithms, int protocols, int* channels) {
  if (algorithms != abi::kAlgorithms || protocols != abi::kProtocols) return kInvalidUsage;
  auto* const entries = reinterpret_cast<float*>(costs);
  const int algorithm = number_of("KIT_TUNER_ALGORITHM", -1);
  const int protocol = number_of("KIT_TUNER_PROTOCOL", 2);
  if (algorithm >= 0) {
    // As plugins do: what is not available stays so.
    float& entry = entries[algorithm * protocols + protocol];
    if (entry != abi::kNotAvailable) entry = 0;
  }
  *channels = number_of("KIT_TUNER_CHANNELS", *channels);
  return 0;
}

#if KIT_TUNER_VERSION == 2
using Table = abi::TunerV2;
int choose(void* context, abi::Function function, std::size_t bytes, int, int, int operations,
           int* algorithm, int* protocol, int* channels) {
  if (!plausible(context, function, bytes, operations)) return kInvalidUsage;
  *algorithm = number_of("KIT_TUNER_ALGORITHM", *algorithm);
  if (*algorithm >= 0) *protocol = number_of("KIT_TUNER_PROTOCOL", 2);
  *channels = number_of("KIT_TUNER_CHANNELS", *channels);
  return 0;
}
#elif KIT_TUNER_VERSION == 3
using Table = abi::TunerV3;
int choose(void* context, abi::Function function, std::size_t bytes, int operations, float** costs,
           int algorithms, int protocols, int* channels) {
  if (!plausible(context, function, bytes, operations)) return kInvalidUsage;
  return fill(costs, algorithms, protocols, channels);
}
#else
#if KIT_TUNER_VERSION == 4
using Table = abi::TunerV4;
#else
using Table = abi::TunerV5;
#endif
int choose(void* context, abi::Function function, std::size_t bytes, int operations, float** costs,
           int algorithms, int protocols, int, int* channels) {
  if (!plausible(context, function, bytes, operations)) return kInvalidUsage;
  return fill(costs, algorithms, protocols, channels);
}
#endif

#if KIT_TUNER_VERSION == 5
int init(void** context, std::uint64_t, std::size_t ranks, std::size_t nodes, abi::Logger logger,
         abi::LinkDomains* domains, abi::ModelConstants* constants) {
  if (domains == nullptr || constants == nullptr || domains->ranks_max < domains->ranks_min ||
      domains->ranks_min < 1)
    return kInvalidUsage;
  return begin(ranks, nodes, logger, context);
}
#else
constexpr auto init = begin;
#endif

}  // namespace
}  // namespace kit::tuner

#define KIT_JOIN(a, b) a##b
#define KIT_SYMBOL(version) KIT_JOIN(ncclTunerPlugin_v, version)

extern "C" {
[[gnu::visibility("default")]] kit::tuner::Table KIT_SYMBOL(KIT_TUNER_VERSION) = {
    "kit", kit::tuner::init, kit::tuner::choose, kit::tuner::end};
}

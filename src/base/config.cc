// config.cc: the table of TUTTI_* variables and the one loop that reads it; see config.hpp.
#include "base/config.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <vector>

#include "base/job_secret.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace tutti::base {
namespace {

template <typename Choice>
struct Named {
  std::string_view name;
  Choice choice;
};

constexpr Named<TransportChoice> kTransports[] = {
    {"auto", TransportChoice::automatic}, {"memory", TransportChoice::memory},
    {"shm", TransportChoice::shm},        {"tcp", TransportChoice::tcp},
    {"ucx", TransportChoice::ucx},        {"net_plugin", TransportChoice::net_plugin}};
constexpr Named<LoweringChoice> kLowerings[] = {{"auto", LoweringChoice::automatic},
                                                {"direct", LoweringChoice::direct},
                                                {"staged", LoweringChoice::staged}};
constexpr Named<ReduceOrder> kReduceOrders[] = {{"any", ReduceOrder::any},
                                                {"rank_tree", ReduceOrder::rank_tree}};
constexpr Named<WaitChoice> kWaits[] = {{"auto", WaitChoice::automatic},
                                        {"spin", WaitChoice::spin},
                                        {"yield", WaitChoice::yield},
                                        {"block", WaitChoice::block}};
constexpr Named<FlightChoice> kFlights[] = {
    {"off", FlightChoice::off}, {"on", FlightChoice::on}, {"verbose", FlightChoice::verbose}};
constexpr Named<ProgressChoice> kProgresses[] = {{"auto", ProgressChoice::automatic},
                                                 {"off", ProgressChoice::off}};
constexpr Named<bool> kSwitch[] = {{"off", false}, {"on", true}};
constexpr Named<bool> kFlag[] = {{"0", false}, {"1", true}, {"off", false}, {"on", true}};
constexpr Named<CheckChoice> kChecks[] = {{"late", CheckChoice::late},
                                          {"strict", CheckChoice::strict}};
constexpr Named<GpuDirectChoice> kGpuDirects[] = {{"auto", GpuDirectChoice::automatic},
                                                  {"off", GpuDirectChoice::off},
                                                  {"receive", GpuDirectChoice::receive},
                                                  {"on", GpuDirectChoice::on}};
constexpr Named<LogLevel> kLogLevels[] = {{"error", LogLevel::error},
                                          {"warn", LogLevel::warn},
                                          {"info", LogLevel::info},
                                          {"debug", LogLevel::debug}};

template <typename Choice>
std::string_view name_of(std::span<const Named<Choice>> names, Choice choice) {
  for (const auto& named : names)
    if (named.choice == choice) return named.name;
  return "unknown";
}

template <typename Choice>
Result<Choice> choice_of(std::span<const Named<Choice>> names, std::string_view text) {
  std::vector<std::string_view> known;
  for (const auto& named : names) {
    if (named.name == text) return named.choice;
    known.push_back(named.name);
  }
  return Status(StatusCode::invalid_argument,
                fmt::format("'{}' is not one of {}", text, join(known, ", ")));
}

// Puts a parsed value where it belongs, or passes the failure on.
template <typename Field, typename Value>
Status store(Result<Value> value, Field& field) {
  if (value.ok()) field = Field(std::move(value).value());
  return value.status();
}

Status store_text(std::string_view text, std::string& field) {
  field = text;
  return {};
}

constexpr std::int64_t kMaxChannels = 64;
constexpr std::int64_t kMaxMilliseconds = std::numeric_limits<std::int32_t>::max();

Status store_milliseconds(std::string_view text, std::chrono::milliseconds& field) {
  return store(parse_integer(text, 1, kMaxMilliseconds), field);
}

Status store_slow_after(std::string_view text, std::chrono::milliseconds& field) {
  return store(parse_integer(text, 0, kMaxMilliseconds), field);
}

Status store_channels(std::string_view text, int& field) {
  const auto value = parse_integer(text, 0, kMaxChannels);
  TUTTI_TRY(value);
  field = static_cast<int>(*value);
  return {};
}

// The error must not repeat the value: it is a secret even when it is badly written.
Status store_secret(std::string_view text, std::string& field) {
  return store(parse_job_secret(text), field);
}

constexpr auto kVariables = std::to_array<ConfigVariable>({
    {"TUTTI_TRANSPORT", "auto|memory|shm|tcp|ucx|net_plugin", "auto",
     "How bytes travel between ranks; auto takes shm within a host and tcp between hosts, ucx is "
     "the UCX library with its own UCX_* variables, and net_plugin what NCCL_NET_PLUGIN names.",
     false,
     [](std::string_view v, Config& c) { return store(parse_transport_choice(v), c.transport); }},
    {"TUTTI_ALGORITHM", "name", "",
     "Forces this algorithm where it can do the collective; without it the planner chooses.", false,
     [](std::string_view v, Config& c) { return store_text(v, c.algorithm); }},
    {"TUTTI_LOWERING", "auto|direct|staged", "auto",
     "Whether ranks load and store each other's memory (direct) or go through queues (staged).",
     false,
     [](std::string_view v, Config& c) { return store(parse_lowering_choice(v), c.lowering); }},
    {"TUTTI_CHANNELS", "0..64", "0",
     "How many independent copies of a schedule share the data; 0 lets the planner choose.", false,
     [](std::string_view v, Config& c) { return store_channels(v, c.channels); }},
    {"TUTTI_SLICE_BYTES", "size", "0",
     "How much of a chunk is in flight at once (8, 64K, 1MiB); 0 lets the planner choose.", false,
     [](std::string_view v, Config& c) { return store(parse_bytes(v), c.slice_bytes); }},
    {"TUTTI_REDUCE_ORDER", "any|rank_tree", "any",
     "rank_tree makes the bits of a reduction independent of how it is done, at some speed.", false,
     [](std::string_view v, Config& c) { return store(parse_reduce_order(v), c.reduce_order); }},
    {"TUTTI_WAIT", "auto|spin|yield|block", "auto",
     "What a waiting rank does with its core; auto spins when there is a core for each rank.",
     false, [](std::string_view v, Config& c) { return store(parse_wait_choice(v), c.wait); }},
    {"TUTTI_PROGRESS", "auto|off", "auto",
     "Whether started calls move although nobody waits: auto makes a thread where there are such.",
     false,
     [](std::string_view v, Config& c) {
       return store(choice_of<ProgressChoice>(kProgresses, v), c.progress);
     }},
    {"TUTTI_SHARE_HEAP", "0|1", "0",
     "Whether plain buffers (malloc) are made such that peers can reach them, at their first call.",
     false,
     [](std::string_view v, Config& c) { return store(choice_of<bool>(kFlag, v), c.share_heap); }},
    {"TUTTI_ATTACH", "0|1", "1",
     "Whether ranks on one host may copy between plain buffers through the system (cross-memory "
     "attach), where it lets them and that is found to be quicker.",
     false,
     [](std::string_view v, Config& c) { return store(choice_of<bool>(kFlag, v), c.attach); }},
    {"TUTTI_GPU_KERNELS", "0|1", "1",
     "Whether libnccl.so.2 makes calls in device memory by kernels where all ranks are in one "
     "process; 0 stages them in the host's memory.",
     false,
     [](std::string_view v, Config& c) { return store(choice_of<bool>(kFlag, v), c.gpu_kernels); }},
    {"TUTTI_GPU_COPY_ENGINES", "0|1", "0",
     "Whether libnccl.so.2 makes calls that only move device memory by copy engines instead of "
     "kernels, where all ranks are threads of one process.",
     false,
     [](std::string_view v, Config& c) {
       return store(choice_of<bool>(kFlag, v), c.gpu_copy_engines);
     }},
    {"TUTTI_GPU_DIRECT", "auto|off|receive|on", "auto",
     "Whether network cards move the memory of GPUs by themselves, where TUTTI_TRANSPORT=ucx and "
     "UCX can; auto asks for an InfiniBand or RoCE card besides, receive sends from the host's "
     "memory.",
     false,
     [](std::string_view v, Config& c) {
       return store(choice_of<GpuDirectChoice>(kGpuDirects, v), c.gpu_direct);
     }},
    {"TUTTI_CHECKSUMS", "on|off", "off",
     "Whether every frame carries a checksum; on turns off direct access to peers' memory.", false,
     [](std::string_view v, Config& c) { return store(choice_of<bool>(kSwitch, v), c.checksums); }},
    {"TUTTI_CHECK", "late|strict", "late",
     "When calls that differ between ranks are found: on this or the next call, or (strict) before "
     "anything is written, at the cost of a small exchange for each call.",
     false,
     [](std::string_view v, Config& c) {
       return store(choice_of<CheckChoice>(kChecks, v), c.check);
     }},
    {"TUTTI_TIMEOUT_MS", "1..2147483647", "600000",
     "How long one collective may take before it fails and names the missing rank.", false,
     [](std::string_view v, Config& c) { return store_milliseconds(v, c.timeout); }},
    {"TUTTI_SETUP_TIMEOUT_MS", "1..2147483647", "30000",
     "How long the ranks of a job may take to find each other.", false,
     [](std::string_view v, Config& c) { return store_milliseconds(v, c.setup_timeout); }},
    {"TUTTI_SOCKET_INTERFACE", "name", "",
     "The network interface to listen on (eth0); without it the one that reaches MASTER_ADDR.",
     false, [](std::string_view v, Config& c) { return store_text(v, c.socket_interface); }},
    {"TUTTI_JOB_SECRET_FILE", "path", "",
     "A file with the secret that the ranks of a job share; `tutti run` makes one for each job.",
     false, [](std::string_view v, Config& c) { return store_text(v, c.job_secret_file); }},
    {"TUTTI_JOB_SECRET", "32..512 hexadecimal digits", "",
     "The secret itself; a file is better, because other programs can read the environment.", true,
     [](std::string_view v, Config& c) { return store_secret(v, c.job_secret); }},
    {"TUTTI_JOB_BOARD", "path", "",
     "Where the launcher notes which ranks have ended; `tutti run` sets it.", false,
     [](std::string_view v, Config& c) { return store_text(v, c.job_board); }},
    {"TUTTI_TUNING_FILE", "path|off", "",
     "What `tutti tune` measured, for the planner; the same on all ranks. Without it the table of "
     "this kind of machine is read from ~/.cache/tutti where there is one; off reads none.",
     false, [](std::string_view v, Config& c) { return store_text(v, c.tuning_file); }},
    {"TUTTI_LOG", "error|warn|info|debug", "warn", "How much Tutti says on stderr.", false,
     [](std::string_view v, Config& c) { return store(parse_log_level(v), c.log); }},
    {"TUTTI_SLOW_AFTER_MS", "0..2147483647", "2000",
     "How long a call may stand still before a warning names the rank it waits for; 0: never.",
     false, [](std::string_view v, Config& c) { return store_slow_after(v, c.slow_after); }},
    {"TUTTI_FLIGHT", "off|on|verbose", "on",
     "The flight recorder, which `tutti doctor` reads and failures print; verbose prints more.",
     false,
     [](std::string_view v,
        Config& c) { return store(choice_of<FlightChoice>(kFlights, v), c.flight); }},
    {"TUTTI_TEST_DATA", "path", "",
     "The folder of large inputs that some tests read; without it they are skipped.", false,
     [](std::string_view v, Config& c) { return store_text(v, c.test_data); }},
});

constexpr std::string_view kPrefix = "TUTTI_";

const ConfigVariable* find_variable(std::string_view name) {
  for (const ConfigVariable& variable : kVariables)
    if (variable.name == name) return &variable;
  return nullptr;
}

Status unknown_variable(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ConfigVariable& variable : kVariables) known.push_back(variable.name);
  // Compared without what all names share, or every name would look near.
  std::vector<std::string_view> endings;
  for (const std::string_view each : known) endings.push_back(each.substr(kPrefix.size()));
  const auto near = nearest(name.substr(kPrefix.size()), endings);
  if (near)
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} is not a setting of Tutti; did you mean {}{}? (`tutti env` lists "
                              "them all)",
                              name, kPrefix, *near));
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is not a setting of Tutti; there are {}", name, join(known, ", ")));
}

}  // namespace

std::string_view to_string(TransportChoice choice) {
  return name_of<TransportChoice>(kTransports, choice);
}
std::string_view to_string(LoweringChoice choice) {
  return name_of<LoweringChoice>(kLowerings, choice);
}
std::string_view to_string(ReduceOrder order) { return name_of<ReduceOrder>(kReduceOrders, order); }
std::string_view to_string(WaitChoice choice) { return name_of<WaitChoice>(kWaits, choice); }
std::string_view to_string(GpuDirectChoice choice) {
  return name_of<GpuDirectChoice>(kGpuDirects, choice);
}

Result<TransportChoice> parse_transport_choice(std::string_view text) {
  return text.empty() ? TransportChoice::automatic : choice_of<TransportChoice>(kTransports, text);
}
Result<LoweringChoice> parse_lowering_choice(std::string_view text) {
  return text.empty() ? LoweringChoice::automatic : choice_of<LoweringChoice>(kLowerings, text);
}
Result<ReduceOrder> parse_reduce_order(std::string_view text) {
  return text.empty() ? ReduceOrder::any : choice_of<ReduceOrder>(kReduceOrders, text);
}
Result<WaitChoice> parse_wait_choice(std::string_view text) {
  return text.empty() ? WaitChoice::automatic : choice_of<WaitChoice>(kWaits, text);
}
Result<LogLevel> parse_log_level(std::string_view text) {
  return choice_of<LogLevel>(kLogLevels, text);
}

std::span<const ConfigVariable> config_variables() { return kVariables; }

Result<Config> parse_config(const Environment& environment) {
  Config config;
  for (auto entry = environment.lower_bound(kPrefix);
       entry != environment.end() && entry->first.starts_with(kPrefix); ++entry) {
    const auto& [name, value] = *entry;
    const ConfigVariable* variable = find_variable(name);
    if (variable == nullptr) return unknown_variable(name);
    if (value.empty()) continue;
    const Status status = variable->read(value, config);
    if (!status.ok()) {
      const std::string shown = variable->secret ? "" : fmt::format("={}", value);
      return status.with_context(fmt::format("{}{}", name, shown));
    }
  }
  return config;
}

}  // namespace tutti::base

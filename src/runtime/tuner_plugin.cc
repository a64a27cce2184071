// tuner_plugin.cc: see tuner_plugin.hpp.
#include "runtime/tuner_plugin.hpp"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "collectives/explain.hpp"
#include "collectives/footprint.hpp"
#include "transport/net_plugin/device.hpp"
#include "transport/net_plugin/library.hpp"

namespace tutti::runtime {
namespace {

using collectives::Plan;
using collectives::Planner;
using collectives::PlanQuery;
using transport::net_plugin::abi::kSuccess;
using tuner_abi::ReturnCode;

constexpr std::size_t kPlansMax = 256;
constexpr std::size_t kNameBytesMax = 64;

std::string bounded(const char* name) {
  if (name == nullptr || *name == '\0') return "a tuner without a name";
  return std::string(name, ::strnlen(name, kNameBytesMax));
}

template <typename Table>
class TableTuner final : public Tuner {
 public:
  TableTuner(const Table& table, void* context) : table_(table), context_(context) {}
  TableTuner(const TableTuner&) = delete;
  TableTuner& operator=(const TableTuner&) = delete;
  ~TableTuner() override {
    if (table_.destroy != nullptr) table_.destroy(context_);
  }

  Result<TunerAnswer> ask(tuner_abi::Function function, std::size_t bytes,
                          const CostTable& costs) override {
    constexpr int kOperations = 1;
    int channels = 0;
    ReturnCode code = kSuccess;
    TunerAnswer answer{costs, 0};
    if constexpr (std::is_same_v<Table, tuner_abi::TunerV2>) {
      int algorithm = -1;
      int protocol = -1;
      code = table_.choose(context_, function, bytes, 0, 0, kOperations, &algorithm, &protocol,
                           &channels);
      answer = named_answer(costs, algorithm, protocol, 0);
    } else {
      auto* const rows = reinterpret_cast<float**>(answer.costs.data());
      if constexpr (std::is_same_v<Table, tuner_abi::TunerV3>)
        code = table_.choose(context_, function, bytes, kOperations, rows, tuner_abi::kAlgorithms,
                             tuner_abi::kProtocols, &channels);
      else
        code = table_.choose(context_, function, bytes, kOperations, rows, tuner_abi::kAlgorithms,
                             tuner_abi::kProtocols, 0, &channels);
    }
    if (code != kSuccess)
      return Status(StatusCode::unsupported, fmt::format("the tuner returned {}", code));
    answer.channels = channels;
    return answer;
  }

 private:
  const Table& table_;  // the library's, which stays open
  void* context_;
};

template <typename Table>
class TablePlugin final : public TunerPlugin {
 public:
  explicit TablePlugin(const Table& table) : table_(table) {}

  std::string name() const override {
    return fmt::format("{} v{}", bounded(table_.name), Table::kVersion);
  }

  Result<std::unique_ptr<Tuner>> begin(const TunerWorld& world) const override {
    if (table_.init == nullptr || table_.choose == nullptr)
      return Status(StatusCode::unsupported, name() + " leaves out functions");
    void* context = nullptr;
    const auto ranks = static_cast<std::size_t>(world.ranks);
    const auto nodes = static_cast<std::size_t>(world.nodes);
    ReturnCode code = kSuccess;
    if constexpr (std::is_same_v<Table, tuner_abi::TunerV5>) {
      tuner_abi::LinkDomains domains{world.nodes, world.node_ranks_min, world.node_ranks_max};
      tuner_abi::ModelConstants constants{};
      code = table_.init(&context, world.communicator, ranks, nodes,
                         transport::net_plugin::logger(), &domains, &constants);
    } else {
      code = table_.init(ranks, nodes, transport::net_plugin::logger(), &context);
    }
    if (code != kSuccess)
      return Status(StatusCode::unsupported,
                    fmt::format("the tuner {} cannot be initialised: {}", name(), code));
    return std::unique_ptr<Tuner>(std::make_unique<TableTuner<Table>>(table_, context));
  }

 private:
  const Table& table_;
};

template <typename Table>
std::unique_ptr<TunerPlugin> plugin_of(void* library) {
  const void* symbol = transport::net_plugin::find_symbol(library, Table::kSymbol);
  if (symbol == nullptr) return nullptr;
  return std::make_unique<TablePlugin<Table>>(*static_cast<const Table*>(symbol));
}

// The newest version that the library has.
std::unique_ptr<TunerPlugin> tuner_in(void* library) {
  if (auto found = plugin_of<tuner_abi::TunerV5>(library)) return found;
  if (auto found = plugin_of<tuner_abi::TunerV4>(library)) return found;
  if (auto found = plugin_of<tuner_abi::TunerV3>(library)) return found;
  return plugin_of<tuner_abi::TunerV2>(library);
}

// The tuner of a net plugin's library; whether that has one is nobody's fault.
std::unique_ptr<TunerPlugin> tuner_beside(std::string_view net_plugins) {
  std::vector<std::string> names = transport::net_plugin::names_of(net_plugins);
  if (names.empty()) names.emplace_back("libnccl-net.so");
  for (const std::string& name : names) {
    const auto library = transport::net_plugin::find_library(name, "libnccl-net-");
    if (library.handle == nullptr) continue;
    if (auto found = tuner_in(library.handle)) return found;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<TunerPlugin>> find_tuner(const base::Environment& environment,
                                                bool net_plugin, base::LogLevel log) {
  const std::string named(base::value_of(environment, "NCCL_TUNER_PLUGIN"));
  if (named == "none") return std::unique_ptr<TunerPlugin>();
  transport::net_plugin::set_log_level(log);
  if (named.empty()) {
    if (!net_plugin) return std::unique_ptr<TunerPlugin>();
    return tuner_beside(base::value_of(environment, "NCCL_NET_PLUGIN"));
  }
  const auto library = transport::net_plugin::find_library(named, "libnccl-tuner-");
  std::string why = library.error;
  if (library.handle != nullptr) {
    if (auto found = tuner_in(library.handle)) return found;
    why = "is a library without any of ncclTunerPlugin_v5, _v4, _v3 and _v2";
  }
  return Status(StatusCode::unsupported,
                fmt::format("NCCL_TUNER_PLUGIN={} cannot be used: '{}' {}", named, named, why));
}

Result<std::shared_ptr<const Plan>> TunedPlanner::plan(Planner& planner, const PlanQuery& query,
                                                       Rank rank) {
  const auto function = tuner_function(query.collective);
  if (!function || query.varied || query.count == 0) return planner.plan(query, rank);
  const Key key{query.collective, query.count, query.type, query.root, query.form, query.width};
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  auto made = make(planner, query, *function, rank);
  if (!made.ok()) return made;
  if (plans_.size() >= kPlansMax) plans_.clear();
  plans_.emplace(key, *made);
  return made;
}

std::size_t TunedPlanner::memory_bytes() const {
  return plans_.size() * (collectives::kNodeBytes + sizeof(Key) + sizeof(Plan));
}

Result<std::shared_ptr<const Plan>> TunedPlanner::make(Planner& planner, const PlanQuery& query,
                                                       tuner_abi::Function function, Rank rank) {
  const auto explanation = planner.explain(query);
  TUTTI_TRY(explanation);
  const auto answer = tuner_->ask(function, collectives::size_bytes(query, planner.ranks()),
                                  cost_table(*explanation));
  if (!answer.ok()) return planner.plan(query, rank);
  const auto wanted = opinion(*explanation, *answer, channels_max_);
  if (!wanted) return planner.plan(query, rank);
  auto made = planner.plan_as(query, *wanted, rank);
  return made.ok() ? made : planner.plan(query, rank);
}

}  // namespace tutti::runtime

// plan_command.cc: options of `tutti plan`, the machine in a line, one size in full, many in a
// table.
#include "cli/plan_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "cli/tune_world.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/explain.hpp"
#include "collectives/lowering.hpp"
#include "collectives/planner.hpp"
#include "collectives/text.hpp"
#include "runtime/host.hpp"
#include "runtime/planning_topology.hpp"
#include "runtime/tuning.hpp"
#include "runtime/world.hpp"

namespace tutti::cli {
namespace {

using collectives::Candidate;
using collectives::Explanation;
using collectives::Planner;
using collectives::PlannerOptions;
using collectives::PlanQuery;

constexpr int kUsageError = 2;
constexpr std::uint64_t kSweepFirst = 8;
constexpr std::uint64_t kSweepLast = std::uint64_t{1} << 28;
// What GPU transports usually offer, where the machine at hand cannot be asked.
constexpr std::size_t kGpuFrameBytes = 512 * 1024;
constexpr int kGpuChannels = 8;

struct Options {
  std::string collective = "all_reduce";
  std::string size;
  std::string sizes;
  bool sweep = false;
  std::string topology;
  int ranks = 0;
  int root = -1;
  std::string type = "float";
  std::string algorithm;
  std::string lowering = "auto";
  int channels = 0;
  int channels_max = 0;
  std::string slice;
  std::string frame;
  bool direct = true;
  std::string reduce_order = "any";
  std::string transport = "shm";
  std::string show;
  int rank = 0;
  bool json = false;
};

// The question, checked.
struct Question {
  Topology topology;
  std::vector<VertexId> placement;
  PlannerOptions options;
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  Rank root = 0;
  std::vector<std::uint64_t> sizes;
  bool ordered = false;  // reduce_order=rank_tree
  std::string tuning;    // a line on the tuning table; empty: there is none

  int ranks() const { return static_cast<int>(placement.size()); }
  PlanQuery query(std::uint64_t bytes) const {
    PlanQuery query = collectives::query_of_size(collective, type, root, ranks(),
                                                 static_cast<std::size_t>(bytes));
    if (ordered) query.form = collectives::rank_tree_form(type);
    return query;
  }
};

Status refuse(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

Status read_bytes(const std::string& name, const std::string& text, std::size_t& bytes) {
  if (text.empty()) return {};
  const Result<std::uint64_t> read = base::parse_bytes(text);
  if (!read.ok()) return read.status().with_context(name);
  bytes = static_cast<std::size_t>(*read);
  return {};
}

Status read_sizes(const Options& options, Question& question) {
  std::string list = options.sizes.empty() ? options.size : options.sizes;
  if (!options.size.empty() && (options.sweep || !options.sizes.empty()))
    return refuse("give one size, --sizes or --sweep, not several of them");
  if (options.sweep)
    for (std::uint64_t bytes = kSweepFirst; bytes <= kSweepLast; bytes *= 4)
      question.sizes.push_back(bytes);
  for (const std::string_view text : base::split(list, ',')) {
    const Result<std::uint64_t> bytes = base::parse_bytes(text);
    TUTTI_TRY(bytes);
    question.sizes.push_back(*bytes);
  }
  if (question.sizes.empty())
    question.sizes.push_back(question.collective == Collective::barrier ? size_of(question.type)
                                                                        : 64U << 20);
  return {};
}

Status read_place(const Options& options, Question& question) {
  Result<Topology> topology = load_topology(options.topology);
  TUTTI_TRY(topology);
  question.topology = *std::move(topology);
  const std::size_t all = seats(question.topology).size();
  const int ranks = options.ranks > 0 ? options.ranks : static_cast<int>(all);
  question.placement = default_placement(question.topology, ranks);
  if (question.placement.empty()) return refuse("the topology has no seat for ranks");
  if (options.root >= ranks || options.rank >= ranks)
    return refuse(
        fmt::format("--root and --rank are 0 to {}: there are {} ranks", ranks - 1, ranks));
  // Sending to oneself is a dull question; the neighbour is the usual one.
  const int natural = question.collective == Collective::send_recv && ranks > 1 ? 1 : 0;
  question.root = options.root >= 0 ? options.root : natural;
  return {};
}

Status read_options(const Options& options, Question& question) {
  const VertexId seat = question.placement.front();
  const bool gpu = question.topology.vertex(seat).kind == VertexKind::gpu;
  PlannerOptions& planning = question.options;
  planning.algorithm = options.algorithm;
  planning.channels = options.channels;
  planning.channel_count = options.channels_max > 0 ? options.channels_max : gpu ? kGpuChannels : 1;
  planning.channel_count = std::max(planning.channel_count, options.channels);
  planning.direct_possible = options.direct;
  planning.direct_bytes_min = gpu ? 0 : collectives::kDirectBytesMin;
  if (gpu) planning.frame_bytes_max = kGpuFrameBytes;
  TUTTI_TRY(read_bytes("--frame", options.frame, planning.frame_bytes_max));
  TUTTI_TRY(read_bytes("--slice", options.slice, planning.slice_bytes));
  planning.frame_bytes_max = std::max(planning.frame_bytes_max, planning.slice_bytes);
  if (options.lowering == "direct") planning.lowering = collectives::Lowering::direct;
  if (options.lowering == "staged") planning.lowering = collectives::Lowering::staged;
  return {};
}

// On this machine: as a communicator of such ranks would plan, by what was measured where it was.
Status read_machine(const Options& options, Question& question) {
  const VertexId seat = question.placement.front();
  if (!options.topology.empty() || question.topology.vertex(seat).kind == VertexKind::gpu)
    return {};
  const base::Environment environment = base::capture_environment();
  base::Config config;
  config.tuning_file = base::value_of(environment, "TUTTI_TUNING_FILE");
  const auto tuning = runtime::find_tuning(config, environment, base::Log());
  TUTTI_TRY(tuning);
  collectives::TuningKey key = tune_key(options.transport, question.ranks());
  key.direct = key.direct && options.direct;
  const auto* figures = tuning->table ? tuning->table->figures(key.transport) : nullptr;
  const std::vector<runtime::HostCard> cards(question.placement.size(), runtime::describe_host());
  auto seen = runtime::planning_topology(cards, key.direct, figures);
  TUTTI_TRY(seen);
  question.topology = std::move(seen->topology);
  question.placement = std::move(seen->placement);
  PlannerOptions& planning = question.options;
  planning.cores = std::move(seen->cores);
  planning.one_machine = seen->one_machine;
  planning.direct_possible = key.direct;
  planning.memory_shared = shares_memory(key.transport);
  if (key.transport == "memory") planning.direct_bytes_min = 0;
  const runtime::Queues queues = runtime::queues_of(key.transport, key.ranks, key.ranks > key.cores,
                                                    {planning.channels, planning.slice_bytes});
  if (options.channels_max == 0) planning.channel_count = queues.channels;
  if (options.frame.empty()) {
    planning.frame_bytes_max = queues.frame_bytes;
    planning.slice_bytes_max = queues.slice_bytes;
    planning.slice_bytes_min = queues.slice_bytes_min;
  }
  if (figures != nullptr) planning.constants = with_figures(planning.constants, *figures);
  if (!tuning->table) return {};
  planning.measured = {tuning->table, tuning->table->place(key)};
  question.tuning =
      fmt::format("tuning: {} ({} with {} ranks on {} cores: {})\n", tuning->source, key.transport,
                  key.ranks, key.cores, planning.measured ? "measured" : "not measured");
  return {};
}

Result<Question> read_question(const Options& options) {
  Question question;
  const Result<Collective> collective = parse_collective(options.collective);
  TUTTI_TRY(collective);
  question.collective = *collective;
  const Result<DataType> type = parse_data_type(options.type);
  TUTTI_TRY(type);
  question.type = *type;
  question.ordered = options.reduce_order == "rank_tree";
  TUTTI_TRY(read_sizes(options, question));
  TUTTI_TRY(read_place(options, question));
  TUTTI_TRY(read_options(options, question));
  TUTTI_TRY(read_machine(options, question));
  return question;
}

// ---- The machine in a line ----

// "nvlink 450 GB/s (given)" for each kind, bandwidth and source that ranks can use.
std::string links_line(const Topology& topology) {
  std::map<LinkKind, std::set<std::string>> kinds;
  for (const Link& link : topology.links())
    kinds[link.kind].insert(fmt::format(
        "{:.4g}{} GB/s ({})", link.bandwidth_ab,
        link.bandwidth_ba == link.bandwidth_ab ? "" : fmt::format("/{:.4g}", link.bandwidth_ba),
        to_string(link.source)));
  std::string line;
  for (const auto& [kind, speeds] : kinds) {
    line += fmt::format("{}{} ", line.empty() ? "" : ", ", to_string(kind));
    if (speeds.size() > 3)
      line += fmt::format("of {} speeds", speeds.size());
    else
      line += fmt::format("{}", fmt::join(speeds, " and "));
  }
  return line;
}

std::string machine_lines(const Question& question) {
  const Topology& topology = question.topology;
  const std::set<VertexId> used(question.placement.begin(), question.placement.end());
  const std::size_t nodes = topology.of_kind(VertexKind::node).size();
  const Vertex& first = topology.vertex(question.placement.front());
  const std::vector<int>& cores = question.options.cores;
  const std::size_t processors = std::set<int>(cores.begin(), cores.end()).size();
  const std::string turns = processors > 0 && processors < used.size()
                                ? fmt::format(", which are {} by turns", processors)
                                : "";
  return fmt::format("machine: {} node{}, ranks on {} of {} {}s ({} to {}){}\nlinks: {}\n{}", nodes,
                     nodes == 1 ? "" : "s", used.size(), seats(topology).size(),
                     to_string(first.kind), first.name,
                     topology.vertex(question.placement.back()).name, turns, links_line(topology),
                     question.tuning);
}

// ---- Answers ----

nlohmann::json to_json(const Explanation& explanation) {
  nlohmann::json out;
  const PlanQuery& query = explanation.query;
  out["collective"] = to_string(query.collective);
  out["type"] = to_string(query.type);
  out["count"] = query.count;
  out["root"] = query.root;
  out["ranks"] = explanation.ranks;
  const std::size_t bytes = collectives::size_bytes(query, explanation.ranks);
  out["bytes"] = bytes;
  out["reason"] = collectives::reason(explanation);
  out["chosen_by"] = collectives::chosen_by(explanation);
  out["bound_us"] = explanation.bound_us();
  auto bound = [&](const char* name, double us, const std::string& origin) {
    out["bounds"][name] = {{"us", us}, {"origin", origin}};
  };
  bound("latency", explanation.latency_bound_us, explanation.latency_origin);
  bound("links", explanation.bandwidth_bound_us, explanation.bandwidth_origin);
  bound("memory", explanation.memory_bound_us, explanation.memory_origin);
  const double factor = collectives::busbw_factor(query.collective, explanation.ranks);
  for (const Candidate& candidate : explanation.candidates) {
    nlohmann::json row;
    row["algorithm"] = candidate.algorithm;
    row["lowering"] = collectives::lowering_name(candidate.settings);
    if (!candidate.not_possible.empty()) {
      row["not_possible"] = candidate.not_possible;
    } else {
      row["channels"] = candidate.settings.channels;
      row["slice_bytes"] = candidate.settings.slice_bytes;
      row["slices"] = candidate.slices;
      row["predicted_us"] = candidate.predicted_us;
      row["limited_by"] = candidate.limited_by;
      if (candidate.measured)
        row["measured"] = {{"us", candidate.measured->us}, {"exact", candidate.measured->exact}};
      if (candidate.predicted_us > 0)
        row["busbw_gb_per_s"] = static_cast<double>(bytes) * factor / candidate.predicted_us / 1000;
    }
    out["candidates"].push_back(std::move(row));
  }
  return out;
}

void print_table_line(const Explanation& explanation) {
  const Candidate& best = explanation.candidates.front();
  const double bytes =
      static_cast<double>(collectives::size_bytes(explanation.query, explanation.ranks));
  const double factor = collectives::busbw_factor(explanation.query.collective, explanation.ranks);
  const bool priced = best.predicted_us > 0;
  fmt::print("{:>10} {:<17} {:<9} {:>8} {:>7} {:>11} {:>11} {:<8} {:>9.4g} {:>8.1f}%  {}\n",
             base::format_bytes(static_cast<std::uint64_t>(bytes)), best.algorithm,
             collectives::lowering_name(best.settings), best.settings.channels, best.slices,
             collectives::format_time(best.predicted_us), collectives::measured_text(best),
             collectives::chosen_by(explanation),
             priced ? bytes * factor / best.predicted_us / 1000 : 0,
             priced ? 100 * explanation.bound_us() / best.predicted_us : 0, best.limited_by);
}

// The schedule of the choice, or one rank's lowered program.
Result<std::string> schedule_text(const Question& question, const Explanation& explanation,
                                  const Options& options) {
  const Candidate& best = explanation.candidates.front();
  const auto algorithm = collectives::find_algorithm(question.collective, best.algorithm);
  TUTTI_TRY(algorithm);
  const bool rooted = has_root(question.collective) || question.collective == Collective::send_recv;
  const Result<Schedule> schedule =
      collectives::build(**algorithm, question.ranks(), rooted ? question.root : 0, best.groups);
  TUTTI_TRY(schedule);
  if (options.show == "schedule") return collectives::to_text(*schedule);
  const collectives::LoweredProgram program = collectives::lower(*schedule, options.rank);
  if (explanation.query.form == collectives::ReductionForm::any)
    return collectives::to_text(program);
  return collectives::to_text(collectives::in_rank_order(program));
}

Status answer(const Options& options) {
  Result<Question> question = read_question(options);
  TUTTI_TRY(question);
  Planner planner(question->topology, question->placement, question->options);
  std::vector<Explanation> answers;
  for (const std::uint64_t bytes : question->sizes) {
    const PlanQuery query = question->query(bytes);
    TUTTI_TRY(planner.plan(query, options.rank));  // says so when nothing can serve
    Result<Explanation> explanation = planner.explain(query);
    TUTTI_TRY(explanation);
    answers.push_back(*std::move(explanation));
  }
  if (!options.show.empty()) {
    const Result<std::string> text = schedule_text(*question, answers.front(), options);
    TUTTI_TRY(text);
    fmt::print("{}", *text);
  } else if (options.json) {
    nlohmann::json out = nlohmann::json::array();
    for (const Explanation& explanation : answers) out.push_back(to_json(explanation));
    fmt::print("{}\n", (answers.size() == 1 ? out[0] : out).dump(2));
  } else if (answers.size() == 1) {
    fmt::print("{}\n{}", machine_lines(*question), collectives::to_text(answers.front()));
  } else {
    fmt::print("{}\n{} of {}, {} ranks\n\n", machine_lines(*question),
               to_string(question->collective), to_string(question->type), question->ranks());
    fmt::print("{:>10} {:<17} {:<9} {:>8} {:>7} {:>11} {:>11} {:<8} {:>9} {:>9}  {}\n", "size",
               "algorithm", "lowering", "channels", "slices", "predicted", "measured", "by",
               "busbw", "of bound", "limited by");
    for (const Explanation& explanation : answers) print_table_line(explanation);
  }
  return {};
}

int run_plan(const Options& options) {
  const Status status = answer(options);
  if (!status.ok()) {
    fmt::print(stderr, "tutti plan: {}\n", status.message());
    return kUsageError;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

void add_question_options(CLI::App& command, Options& options) {
  command.add_option("collective", options.collective, "Such as all_reduce")->capture_default_str();
  command.add_option("size", options.size, "Such as 64MiB; what nccl-tests call size");
  command.add_option("--sizes", options.sizes, "Several sizes: the choice for each")
      ->type_name("LIST");
  command.add_flag("--sweep", options.sweep, "Sizes from 8 B to 128 MiB");
  command
      .add_option("--topology", options.topology,
                  "A file, or a line such as \"4x8 nvlink=450 nic=50\"; this machine without")
      ->type_name("WHAT");
  command.add_option("--ranks", options.ranks, "One per seat of the topology without")
      ->check(CLI::Range(1, 1 << 17));
  command.add_option("--root", options.root, "Of broadcast and reduce; how far send_recv sends")
      ->check(CLI::Range(0, 1 << 17));
  command.add_option("--type", options.type, "Of elements")->capture_default_str();
}

void add_choice_options(CLI::App& command, Options& options) {
  command.add_option("--algorithm", options.algorithm, "Only this one")->type_name("NAME");
  command.add_option("--lowering", options.lowering, "Only this one")
      ->check(CLI::IsMember({"auto", "direct", "staged"}))
      ->capture_default_str();
  command
      .add_option("--reduce-order", options.reduce_order,
                  "rank_tree: only what adds along the tree over the ranks")
      ->check(CLI::IsMember({"any", "rank_tree"}))
      ->capture_default_str();
  command.add_option("--channels", options.channels, "Exactly so many")->check(CLI::Range(1, 64));
  command.add_option("--max-channels", options.channels_max, "What the transport offers")
      ->check(CLI::Range(1, 64));
  command.add_option("--slice", options.slice, "Bytes of a slice of a chunk")->type_name("SIZE");
  command.add_option("--frame", options.frame, "Bytes that the transport carries at once")
      ->type_name("SIZE");
  command
      .add_flag("--direct,!--no-direct", options.direct,
                "Whether ranks of a node can address each other's memory")
      ->default_str("yes");
  command
      .add_option("--transport", options.transport,
                  "On this machine, whose measurements count (docs/tuning.md)")
      ->check(CLI::IsMember({"memory", "shm", "tcp"}))
      ->capture_default_str();
  command
      .add_option("--show", options.show,
                  "Print the chosen schedule, or the program that --rank runs")
      ->check(CLI::IsMember({"schedule", "program"}));
  command.add_option("--rank", options.rank, "Whose program --show prints")
      ->check(CLI::Range(0, 1 << 17));
  command.add_flag("--json", options.json, "JSON");
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("plan", "Choose how a collective is done on a machine, and say why");
  add_question_options(*command, *options);
  add_choice_options(*command, *options);
  command->footer("Example: tutti plan all_reduce 64MiB --topology \"4x8 nvlink=450 nic=50\"");
  command->callback([options, &exit_code] { exit_code = run_plan(*options); });
}

}  // namespace tutti::cli

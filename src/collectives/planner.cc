// The planner: a family of priced algorithms for each collective and root, and choices among them.
//
// Pricing a schedule is dear and choosing must not be, so a schedule is priced at a few chunk
// sizes, when they are first needed, and between them its cost is a straight line: a new size costs
// some hundred multiplications, a known one a look-up.
#include "collectives/planner.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "collectives/explain.hpp"
#include "collectives/geometry.hpp"
#include "collectives/lowering.hpp"
#include "collectives/placement_groups.hpp"
#include "collectives/planner_state.hpp"

namespace tutti::collectives {
namespace {

// Schedules with more operands than this are not priced: planning stays a matter of seconds at
// any number of ranks, and algorithms with so many messages only fit small worlds anyway.
constexpr std::size_t kPricedOperandsMax = 1'000'000;
// Plans that are kept; all are forgotten when there are more, and made anew when asked for.
constexpr std::size_t kPlansMax = 4096;
constexpr std::size_t kSmallBytes = 4096;     // of a call
constexpr std::size_t kSmallestShare = 4096;  // of a chunk that channels share
// Up to where leaders take turns through queues between buffers that all can address. Source: as in
// algorithms/table.cc, leaders_direct_in_turn and the quickest of those that address buffers, us:
// near cores 64 KiB 7.3 and 7.8, 128 KiB 12.3 and 10.8; far ones 64 KiB 14.7 and 15, 128 KiB 26.7
// and 17.5.
constexpr std::size_t kQueuedInTurnBytes = 64 << 10;

const std::vector<GroupSizes> kNoGroups = {GroupSizes()};

Status refuse(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

// Operands of all ranks, without unrolling anything.
std::size_t operand_count(const Schedule& schedule) {
  std::vector<std::size_t> of_program;
  for (const Program& program : schedule.programs) {
    std::size_t operands = 0;
    for (const Repeat& part : program.parts) {
      std::size_t body = 0;
      for (const Step& step : part.body) body += step.sources.size() + step.destinations.size();
      operands += body * static_cast<std::size_t>(part.times);
    }
    of_program.push_back(operands);
  }
  std::size_t total = 0;
  for (const int program : schedule.program_of_rank)
    total += of_program[static_cast<std::size_t>(program)];
  return total;
}

// As the ranks of one machine move plain memory where they share cores: all of it goes through
// queues, and then it is not whose core lines come from that counts, but whether the core's own
// cache has them. Fitted to all_reduce of 16 KiB to 16 MiB between 4 and 8 processes on two cores
// of a Xeon (2 MiB of such cache), by direct, leaders_one_shot and leaders_direct: what is chosen
// is the quickest of them, or within an eighth of it.
CostConstants of_plain_memory(CostConstants constants) {
  constants.in_caches.near = constants.in_caches.queued = 0.42;
  constants.in_memory.near = 0.87;
  constants.in_memory.queued = 0.83;
  constants.cache_bytes = 1.1 * (1 << 20);
  constants.shared_memory.payload_ns = 400;
  return constants;
}

// A forced algorithm speaks of the collectives that have it.
bool names_an_algorithm(std::string_view name) {
  const std::span<const Algorithm> all = all_algorithms();
  return std::any_of(all.begin(), all.end(),
                     [&](const Algorithm& algorithm) { return algorithm.name == name; });
}

// In how few pieces the data go.
std::size_t pieces(const Choice& choice) {
  return static_cast<std::size_t>(choice.entry->schedule.shape.chunks) * choice.slices;
}

// Of a small call, whose time is messages: a difference that the model cannot know is not worth one
// more. Requires  sorted.
void prefer_simple(std::vector<Choice>& found) {
  constexpr double kAlike = 1.01;
  const Choice best = found.front();
  auto simplest = found.begin();
  for (auto choice = found.begin(); choice != found.end(); ++choice) {
    if (!choice->not_possible.empty() || choice->time_ns > best.time_ns * kAlike) break;
    if (choice->settings.direct == best.settings.direct && pieces(*choice) < pieces(*simplest))
      simplest = choice;
  }
  std::rotate(found.begin(), simplest, simplest + 1);
}

}  // namespace

ReductionForm form_of(const PlanQuery& query) {
  return is_reduction(query.collective) ? query.form : ReductionForm::any;
}

std::string out_of_order(Entry& entry, const PlanQuery& query) {
  const ReductionForm form = form_of(query);
  if (form == ReductionForm::any || !entry.not_possible.empty()) return {};
  if (!entry.expression) entry.expression = prove_expressions(entry.schedule);
  if (entry.odd && entry.expression->form >= form) {
    const ExpressionProof odd = prove_expressions(*entry.odd);
    if (odd.form < entry.expression->form) entry.expression = odd;
  }
  if (entry.expression->form >= form) return {};
  const bool direct = entry.algorithm->name == "direct";
  return fmt::format("{}, which reduce_order=rank_tree forbids for {}{}", entry.expression->reason,
                     to_string(query.type), direct ? "" : "; use direct");
}

ReductionForm rank_tree_form(DataType type) {
  if (!is_floating(type)) return ReductionForm::any;
  return size_of(type) >= sizeof(float) ? ReductionForm::tree : ReductionForm::one_pass;
}

Planner::State::State(Topology t, std::vector<VertexId> p, PlannerOptions o)
    : topology(std::move(t)),
      placement(std::move(p)),
      options(std::move(o)),
      machine(topology, placement, options.constants, options.cores, options.one_machine),
      groups(groups_of(topology, placement)) {
  if (!machine.takes_turns() || !tries(true) || !tries(false)) return;
  plain_machine.emplace(topology, placement, of_plain_memory(options.constants), options.cores,
                        options.one_machine);
}

Status Planner::State::check(const PlanQuery& query) const {
  if (ranks() == 0) return refuse("no ranks to plan for");
  const bool rooted = has_root(query.collective) || query.collective == Collective::send_recv;
  if (rooted && (query.root < 0 || query.root >= ranks()))
    return refuse(fmt::format("root {}: there are {} ranks", query.root, ranks()));
  if (options.channels < 0 || options.channels > options.channel_count)
    return refuse(fmt::format("{} channels: the transport offers 1 to {}", options.channels,
                              options.channel_count));
  if (!query.varied && options.lowering == Lowering::direct && !options.direct_possible)
    return Status(StatusCode::unsupported,
                  "direct lowering needs ranks that can address each other's memory; use staged or "
                  "leave the choice open");
  return {};
}

// The table's algorithms for the query's collective and root, or the one that is forced.
Result<std::vector<std::unique_ptr<Entry>>*> Planner::State::family(const PlanQuery& query) {
  const bool rooted = has_root(query.collective) || query.collective == Collective::send_recv;
  const ShapeKey key{query.collective, rooted ? query.root : 0};
  const auto known = families.find(key);
  if (known != families.end()) return &known->second;
  std::vector<const Algorithm*> algorithms = algorithms_for(query.collective);
  const Result<const Algorithm*> forced = find_algorithm(query.collective, options.algorithm);
  if (forced.ok())
    algorithms = {*forced};
  else if (!options.algorithm.empty() && !names_an_algorithm(options.algorithm))
    return forced.status();
  std::vector<std::unique_ptr<Entry>> entries;
  for (const Algorithm* algorithm : algorithms) {
    for (const GroupSizes& groups_tried : algorithm->grouped ? groups : kNoGroups) {
      Result<std::unique_ptr<Entry>> entry = make_entry(*algorithm, groups_tried, query);
      TUTTI_TRY(entry);
      entries.push_back(std::move(*entry));
    }
  }
  return &families.emplace(key, std::move(entries)).first->second;
}

Result<std::unique_ptr<Entry>> Planner::State::make_entry(const Algorithm& algorithm,
                                                          const GroupSizes& groups_tried,
                                                          const PlanQuery& query) {
  auto entry = std::make_unique<Entry>();
  entry->groups = groups_tried;
  entry->algorithm = &algorithm;
  const bool rooted = has_root(query.collective) || query.collective == Collective::send_recv;
  Result<Schedule> schedule = build(algorithm, ranks(), rooted ? query.root : 0, groups_tried);
  if (!schedule.ok()) {
    entry->not_possible = schedule.status().message();
    return entry;
  }
  entry->schedule = std::move(*schedule);
  if (algorithm.in_turn()) {
    Result<Schedule> odd = build(algorithm, ranks(), 1, groups_tried);
    TUTTI_TRY(odd);
    entry->odd = std::move(*odd);
  }
  const std::size_t operands = operand_count(entry->schedule);
  if (operands > kPricedOperandsMax) {
    entry->not_priced = fmt::format("{} operands in all steps are too many to price (at most {})",
                                    operands, kPricedOperandsMax);
    return entry;
  }
  TUTTI_TRY(price(*entry));
  return entry;
}

// Why it is not chosen unless it is asked for, of memory that peers can address, or of `plain`.
std::string Planner::State::needless(const Algorithm& algorithm, const PlanQuery& query,
                                     bool plain) const {
  if (options.algorithm == algorithm.name) return {};
  if (algorithm.for_order_only && form_of(query) == ReductionForm::any)
    return "is for reduce_order=rank_tree";
  if (algorithm.combines() && !machine.takes_turns()) return "is for ranks that share cores";
  std::size_t most = algorithm.in_turn_bytes;
  if (!plain && options.direct_possible) most = std::min(most, kQueuedInTurnBytes);
  if (algorithm.in_turn() && query.bytes() > most)
    return fmt::format("is for up to {} KiB", most >> 10);
  return {};
}

// Why an algorithm that combines in shared memory cannot serve.
std::string Planner::State::cannot_combine(const Algorithm& algorithm, const PlanQuery& query,
                                           bool direct) const {
  if (!algorithm.combines()) return {};
  if (direct) return "exchanges no addresses; use staged";
  if (!options.memory_shared || query.varied)
    return "needs memory that all ranks see, and blocks of equal size; use leaders_one_shot";
  if (query.bytes() <= algorithm.combined_bytes) return {};
  return fmt::format("serves up to {} KiB; use leaders_one_shot", algorithm.combined_bytes >> 10);
}

bool Planner::State::tries(bool direct) const {
  if (direct) return options.direct_possible && options.lowering != Lowering::staged;
  return options.lowering != Lowering::direct;
}

Status Planner::State::price(Entry& entry) {
  const std::vector<LoweredProgram> programs = lower_all(entry.schedule);
  std::vector<LoweredProgram> odd;
  if (entry.odd) odd = lower_all(*entry.odd);
  const bool all_reduce = entry.algorithm->collective == Collective::all_reduce;
  for (const Pricing pricing : {Pricing::staged, Pricing::direct, Pricing::plain}) {
    const bool direct = pricing == Pricing::direct;
    if (pricing == Pricing::plain ? !plain_machine || !all_reduce : !tries(direct)) continue;
    Result<CostGraph> graph = CostGraph::make(programs, machine_of(pricing), direct);
    TUTTI_TRY(graph);
    std::optional<PriceTable>& prices = entry.prices[static_cast<std::size_t>(pricing)];
    prices.emplace(std::move(*graph));
    if (direct || !entry.odd) continue;
    Result<CostGraph> other = CostGraph::make(odd, machine_of(pricing), false);
    TUTTI_TRY(other);
    prices->alternate_with(std::move(*other));
  }
  return {};
}

std::vector<int> Planner::State::channel_choices() const {
  if (options.channels > 0) return {options.channels};
  std::vector<int> choices;
  for (int channels = 1; channels < options.channel_count; channels *= 2)
    choices.push_back(channels);
  choices.push_back(std::max(1, options.channel_count));
  return choices;
}

std::vector<std::size_t> Planner::State::slice_choices(const Algorithm& algorithm) const {
  const bool whole = options.slice_bytes_max == 0 || algorithm.in_turn();
  const std::size_t largest =
      whole ? options.frame_bytes_max : std::min(options.slice_bytes_max, options.frame_bytes_max);
  if (options.slice_bytes > 0) return {std::min(options.slice_bytes, largest)};
  std::vector<std::size_t> choices = {largest};
  while (choices.back() / 4 >= options.slice_bytes_min && choices.size() < 4)
    choices.push_back(choices.back() / 4);
  return choices;
}

// What a call takes that the model prices at `time_ns`, by the way in which such calls are made.
double Planner::State::as_made(double time_ns, const Choice& choice, PriceTable& prices,
                               Machine& priced_on, double bytes) const {
  const CostConstants& constants = machine.constants();
  const CostGraph& graph = prices.graph();
  if (choice.entry->algorithm->combines()) {
    const double empty_ns = prices.at(priced_on, 0, priced_on.data_in(bytes)).time_ns;
    return constants.combining * empty_ns + constants.in_turn * (time_ns - empty_ns);
  }
  const ScheduleShape& shape = choice.entry->schedule.shape;
  const bool whole = !choice.settings.direct && choice.slices == 1;
  const double message = bytes / shape.chunks * shape.message_chunks_max;
  if (!machine.takes_turns()) {
    const std::size_t most = ranks() == 2 ? kPairSentAtOnceBytes : kSentAtOnceBytes;
    const bool at_once = whole && graph.sent_at_once() && message <= static_cast<double>(most);
    const bool is_set_up = options.memory_shared && !choice.settings.direct && !at_once;
    return is_set_up ? time_ns + constants.set_up_ns : time_ns;
  }
  const bool one_round =
      prices.alternates() || (graph.one_round() && bytes * (ranks() - 1) <= kHeardAtOnceBytes);
  if (whole && one_round && message <= kSentAtOnceBytes) return time_ns * constants.one_round;
  return prices.alternates() && choice.slices == 1 ? time_ns * constants.in_turn : time_ns;
}

// The best of these channels and slices for an algorithm in one lowering.
Choice Planner::State::settle(Entry& entry, Pricing pricing, const PlanQuery& query,
                              const std::vector<int>& channels_tried,
                              const std::vector<std::size_t>& slices_tried) {
  Choice best{&entry, {}, 0, {}, 0, 0, entry.not_possible};
  const bool direct = pricing == Pricing::direct;
  best.settings.direct = direct;
  if (best.not_possible.empty())
    best.not_possible = cannot_combine(*entry.algorithm, query, direct);
  if (!best.not_possible.empty()) return best;
  std::optional<PriceTable>& prices = entry.prices[static_cast<std::size_t>(pricing)];
  Machine& priced_on = machine_of(pricing);
  const auto bytes = static_cast<double>(query.bytes());
  const ScheduleShape& shape = entry.schedule.shape;
  if (query.varied && (shape.chunks > 1 || shape.scratch_blocks > 0)) {
    best.not_possible = "needs blocks of equal size; use ring, direct or pairwise";
    return best;
  }
  bool found = false;
  for (const int channels : channels_tried) {
    const bool too_many = bytes < static_cast<double>(channels * shape.chunks) * kSmallestShare;
    if (found && too_many) break;
    for (const std::size_t slice_bytes : slices_tried) {
      const std::size_t slices =
          slices_needed(shape, query.values(), query.value_bytes(), channels, slice_bytes);
      if (slices == 0) continue;
      Choice choice{&entry, {channels, slice_bytes, direct}, 0, {}, 0, slices, {}};
      choice.slices *= static_cast<std::size_t>(channels);
      if (prices) {
        const double pieces = static_cast<double>(choice.slices) * shape.chunks;
        choice.slice = prices->at(priced_on, bytes / pieces, priced_on.data_in(bytes));
        choice.overhead_ns = prices->overhead_ns(priced_on);
        const double time_ns = call_ns(priced_on.constants(), choice.slice,
                                       prices->graph().exchange_ns(), slices, channels);
        choice.time_ns = std::round(as_made(time_ns, choice, *prices, priced_on, bytes));
      }
      if (!found || choice.time_ns < best.time_ns) best = std::move(choice);
      found = true;
    }
  }
  if (!found)
    best.not_possible = fmt::format(
        "slices of {} bytes cannot hold {} chunks of {} x {} in one message", slices_tried.front(),
        shape.message_chunks_max, query.width, to_string(query.type));
  return best;
}

// One algorithm in every lowering that can do something for it.
void Planner::State::add_choices(Entry& entry, bool forced, const PlanQuery& query,
                                 std::vector<Choice>& found) {
  std::string unwanted = out_of_order(entry, query);
  if (unwanted.empty()) unwanted = needless(*entry.algorithm, query, false);
  const std::vector<int> channels = query.varied ? std::vector<int>{1} : channel_choices();
  for (const bool direct : {false, true}) {
    if (query.varied ? direct : !tries(direct)) continue;
    const Pricing pricing = direct ? Pricing::direct : Pricing::staged;
    const std::optional<PriceTable>& prices = entry.prices[static_cast<std::size_t>(pricing)];
    if (direct && options.lowering == Lowering::automatic && prices &&
        !prices->graph().any_direct())
      continue;  // the same as staged, but exchanging addresses for nothing
    // Plain memory that has no plan of its own pays for the exchange; ranks that share cores meet
    // once more for it. Source: 8 ranks on two near cores of an EPYC, all_reduce of 8 KiB 10.0
    // us with it and 8.6 without, of 16 KiB 10.7 and 9.7.
    const int times = machine.takes_turns() ? 4 : has_plain_plans(query) ? 1 : 2;
    const std::size_t least = options.direct_bytes_min * static_cast<std::size_t>(times);
    if (direct && options.lowering == Lowering::automatic &&
        (query.bytes() < least || entry.algorithm->in_turn() || entry.algorithm->combines()))
      continue;
    found.push_back(settle(entry, pricing, query, channels, slice_choices(*entry.algorithm)));
    Choice& choice = found.back();
    if (choice.not_possible.empty()) choice.not_possible = unwanted;
    if (!forced && choice.not_possible.empty()) choice.not_possible = entry.not_priced;
  }
}

// What was measured, then the simplest of the cheapest, then those that are dearer, those that are
// not priced, and the impossible ones.
Result<Choices> Planner::State::choices(const PlanQuery& query) {
  TUTTI_TRY(check(query));
  const Result<std::vector<std::unique_ptr<Entry>>*> entries = family(query);
  TUTTI_TRY(entries);
  Choices choices;
  std::vector<Choice>& found = choices.list;
  for (const std::unique_ptr<Entry>& entry : **entries)
    add_choices(*entry, (*entries)->front()->algorithm == (*entries)->back()->algorithm, query,
                found);
  const auto possible = [](const Choice& choice) { return choice.not_possible.empty(); };
  // Where the order of a reduction leaves nothing that is priced, what is not priced must do.
  if (form_of(query) != ReductionForm::any && std::none_of(found.begin(), found.end(), possible))
    for (Choice& choice : found)
      if (choice.not_possible == choice.entry->not_priced) choice.not_possible.clear();
  std::stable_sort(found.begin(), found.end(), [&](const Choice& x, const Choice& y) {
    if (possible(x) != possible(y)) return possible(x);
    return possible(x) && x.time_ns < y.time_ns;
  });
  if (!found.empty() && size_bytes(query, ranks()) <= kSmallBytes) prefer_simple(found);
  if (finds_out_combining(query, choices)) combine_later(found);
  prefer_measured(query, choices);
  return choices;
}

// Why a setting or the transport forbids it; empty when none does.
std::string Planner::State::not_allowed(const TunedChoice& wanted) const {
  const PlanSettings& settings = wanted.settings;
  if (!options.algorithm.empty() && options.algorithm != wanted.algorithm)
    return fmt::format("the algorithm was set to {}", options.algorithm);
  if (!tries(settings.direct))
    return options.lowering == Lowering::automatic
               ? "ranks cannot address each other's memory"
               : fmt::format("the lowering was set to {}", settings.direct ? "staged" : "direct");
  if (options.channels > 0 && options.channels != settings.channels)
    return fmt::format("the number of channels was set to {}", options.channels);
  if (settings.channels > options.channel_count)
    return fmt::format("the transport offers {} channels", options.channel_count);
  if (options.slice_bytes > 0 && options.slice_bytes != settings.slice_bytes)
    return fmt::format("slices were set to {} bytes", options.slice_bytes);
  if (settings.slice_bytes > options.frame_bytes_max)
    return fmt::format("the transport carries {} bytes at once", options.frame_bytes_max);
  return {};
}

// One way of doing it, or `unsupported` with why it cannot serve.
Result<Choice> Planner::State::choice_as(const PlanQuery& query, const TunedChoice& wanted) {
  const auto unsupported = [](std::string why) {
    return Status(StatusCode::unsupported, std::move(why));
  };
  TUTTI_TRY(check(query));
  if (std::string why = not_allowed(wanted); !why.empty()) return unsupported(std::move(why));
  const Result<std::vector<std::unique_ptr<Entry>>*> entries = family(query);
  TUTTI_TRY(entries);
  std::optional<Choice> best;
  for (const std::unique_ptr<Entry>& entry : **entries) {
    if (entry->algorithm->name != wanted.algorithm) continue;
    Choice choice = settle(*entry, wanted.settings.direct ? Pricing::direct : Pricing::staged,
                           query, {wanted.settings.channels}, {wanted.settings.slice_bytes});
    if (choice.not_possible.empty()) choice.not_possible = out_of_order(*entry, query);
    const bool better = !best || (!best->not_possible.empty() && choice.not_possible.empty()) ||
                        (best->not_possible.empty() == choice.not_possible.empty() &&
                         choice.time_ns < best->time_ns);
    if (better) best = std::move(choice);
  }
  if (!best)
    return unsupported(fmt::format("{} has no such algorithm", to_string(query.collective)));
  if (!best->not_possible.empty()) return unsupported(best->not_possible);
  return *std::move(best);
}

// Puts what the table says first. Whatever is wrong with that is no error of the call's: then the
// model's choice stays, and the explanation says why.
void Planner::State::prefer_measured(const PlanQuery& query, Choices& found) {
  if (!options.measured || query.varied) return;
  const TunedUse* use = use_for(*options.measured, query.collective, size_bytes(query, ranks()));
  if (use == nullptr || use->choice.algorithm.empty()) return;
  Result<Choice> wanted = choice_as(query, use->choice);
  if (!wanted.ok()) {
    found.table_refused =
        fmt::format("{}, {}: {}", use->choice.algorithm, lowering_name(use->choice.settings),
                    wanted.status().message());
    return;
  }
  std::vector<Choice>& list = found.list;
  const auto same = [&](const Choice& choice) {
    return choice.entry == wanted->entry && choice.settings.direct == wanted->settings.direct;
  };
  list.erase(std::remove_if(list.begin(), list.end(), same), list.end());
  list.insert(list.begin(), *std::move(wanted));
  found.by_measurement = true;
}

std::shared_ptr<const LoweredProgram> Planner::State::program_of(const Schedule& schedule,
                                                                 bool ordered, Rank rank) {
  LoweredProgram lowered = lower(schedule, rank);
  if (ordered) lowered = in_rank_order(std::move(lowered));
  return std::make_shared<const LoweredProgram>(std::move(lowered));
}

std::shared_ptr<Plan> Planner::State::make_plan(const Choice& choice, bool ordered,
                                                Rank rank) const {
  Entry& entry = *choice.entry;
  std::shared_ptr<const LoweredProgram>& program = entry.programs[{rank, ordered}];
  if (program == nullptr) program = program_of(entry.schedule, ordered, rank);
  auto plan = std::make_shared<Plan>();
  plan->algorithm = entry.algorithm->name;
  plan->settings = choice.settings;
  plan->program = program;
  plan->all_meet = entry.algorithm->all_meet();
  if (entry.algorithm->combines()) plan->combining_group = entry.groups.outermost();
  if (entry.odd && !choice.settings.direct) {
    auto& odd = entry.odd_programs[{rank, ordered}];
    if (odd == nullptr) odd = program_of(*entry.odd, ordered, rank);
    plan->odd = odd;
  }
  if (choice.settings.direct && entry.algorithm->all_copy()) {
    auto& pulled = entry.pulled[rank];
    if (pulled == nullptr)
      pulled = std::make_shared<const LoweredProgram>(lower(entry.schedule, rank, Copies::pulled));
    plan->pulled = pulled;
  }
  plan->hash = plan_hash(plan->algorithm, entry.groups, entry.schedule.shape, choice.settings);
  return plan;
}

Planner::Planner(Topology topology, std::vector<VertexId> placement, PlannerOptions options)
    : state_(
          std::make_unique<State>(std::move(topology), std::move(placement), std::move(options))) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

int Planner::ranks() const { return state_->ranks(); }

Result<std::shared_ptr<const Plan>> Planner::plan(const PlanQuery& query, Rank rank) {
  TUTTI_ASSERT(rank >= 0 && rank < ranks(), "a plan is for one of the ranks");
  const PlanKey key{query.collective, query.root,     query.count, query.type,
                    query.varied,     form_of(query), query.width, rank};
  const auto known = state_->plans.find(key);
  if (known != state_->plans.end()) return known->second;
  const Result<Choices> choices = state_->choices(query);
  TUTTI_TRY(choices);
  const Choice& best = choices->list.front();
  if (!best.not_possible.empty())
    return Status(StatusCode::unsupported,
                  fmt::format("{} by {}: {}", to_string(query.collective),
                              best.entry->algorithm->name, best.not_possible));
  const bool ordered = form_of(query) != ReductionForm::any;
  const auto plan = state_->make_plan(best, ordered, rank);
  if (const auto plain = state_->plain_choices(query, *choices); !plain.empty()) {
    const auto made = state_->make_plan(plain.front(), ordered, rank);
    const auto add = [&](Plan& to, const std::vector<Choice>& others) {
      for (const Choice& other : others)
        to.others.push_back(state_->make_plan(other, ordered, rank));
    };
    if (state_->tries_others(query, *choices, false)) add(*plan, State::others(choices->list));
    add(*made, state_->plain_others(query, plain, *choices));
    plan->plain = made;
  }
  if (state_->plans.size() >= kPlansMax) state_->plans.clear();
  return state_->plans.emplace(key, plan).first->second;
}

Result<std::shared_ptr<const Plan>> Planner::plan_as(const PlanQuery& query,
                                                     const TunedChoice& choice, Rank rank) {
  TUTTI_ASSERT(rank >= 0 && rank < ranks(), "a plan is for one of the ranks");
  const Result<Choice> wanted = state_->choice_as(query, choice);
  TUTTI_TRY(wanted);
  return std::shared_ptr<const Plan>(
      state_->make_plan(*wanted, form_of(query) != ReductionForm::any, rank));
}

Result<double> Planner::predict(const PlanQuery& query, const TunedChoice& choice) {
  const Result<Choice> wanted = state_->choice_as(query, choice);
  TUTTI_TRY(wanted);
  return wanted->time_ns / 1000;
}

std::size_t Planner::memory_bytes() const {
  std::size_t bytes = sizeof(State);
  for (const auto& [key, entries] : state_->families) {
    bytes += kNodeBytes + sizeof(key) + bytes_of(entries);
    for (const auto& entry : entries) bytes += entry->memory_bytes();
  }
  for (const auto& [key, plan] : state_->plans)
    bytes += kNodeBytes + sizeof(key) + sizeof(Plan) + plan->algorithm.capacity();
  return bytes;
}

}  // namespace tutti::collectives

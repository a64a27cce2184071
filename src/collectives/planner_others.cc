// planner_others.cc: the further plans of a call besides the one that is predicted to be the
// quickest: one for plain memory, and those that calls try because the model cannot know.
#include <algorithm>
#include <string_view>
#include <utility>

#include "collectives/planner_state.hpp"

namespace tutti::collectives {
namespace {

// What the model cannot know, a program's calls find out, if they are not too long for it: of so
// many bytes at most, by so many further plans, none of which is to take more than so many times
// what the best is predicted to take. Source: 4 ranks on two cores of two EPYC hosts, 64 to 128
// KiB: the quickest of what was tried took 0.74 to 1 of what was chosen took, and was another one
// on each; 256 KiB of plain memory between far cores of a third, 0.75.
constexpr std::size_t kTriedBytes = 256 * 1024;
constexpr std::size_t kOthersMax = 3;
constexpr double kOthersTime = 2;

// Up to so many bytes nothing else is tried where groups combine. Source: two cores of an EPYC, by
// combining and by what was the quickest without, us: 4 ranks, 32 KiB, near cores 4.5 and 4.2, far
// ones 7.4 and 8.7, 64 KiB 7.3 and 6.0, 12.1 and 13.6; 8 ranks, 32 KiB, near 8.5 and 11.5, 64 KiB
// of allocated memory 15.4 and 14.1, of plain memory 16.2 and 19.4.
constexpr std::size_t kCombinedAnywayBytes = 32 * 1024;

// So many bytes at most of plain memory, where more than two ranks share a core. Source: 8 ranks on
// two near cores of an EPYC, 1 MiB, us: what was chosen 439, what was found 250; of memory that
// peers can address trying costs more than is found (136 and 169).
constexpr std::size_t kTriedPlainBytesOfMany = 1024 * 1024;

// For plain memory of more bytes than this, so many plans that exchange addresses are tried as
// well. They cut what then goes through queues otherwise, and what they gain by that is more than
// the exchange costs. Those that are the quickest through queues gain the most. Source: 8 ranks on
// two cores of an EPYC, 256 KiB, far, us: the best through queues by the model 105 to 117, the best
// that was tried of those 72, leaders_direct between addresses 68; 1 MiB in rank order, near, what
// is found among the quickest between addresses 301, among these, which is leaders_in_order, 248.
constexpr std::size_t kDirectThoughPlainBytes = 128 * 1024;
constexpr std::size_t kDirectThoughPlain = 2;

// Of plain memory, where more than two ranks share a core, leaders go through slices of so much at
// most: what all of a group lay down, and the result that they read, then stays in the core's own
// cache. Source: 8 ranks on two cores of a Sapphire Rapids (2 MiB of such cache), leaders_direct
// through queues by slices of 128, 64 and 32 KiB, us: 256 KiB 345, 227 and 261, 512 KiB 694, 507
// and 505, 1 MiB 1328, 997 and 1096, 2 MiB 2995, 2462 and 3234.
constexpr std::size_t kSlicesOfMany = 64 * 1024;
constexpr std::string_view kLeaders = "leaders";

// Of plain memory, how little and how much for each rank has a plan of its own, too, where it is in
// order and leaders take no turns; what is tried has one anyway. Source: two cores of an EPYC,
// without such a plan and with it, by leaders_in_order, us: 4 ranks, near cores, 64 KiB 18.5
// and 23.5, 256 KiB 59.5 and 51, 1 MiB 241 and 208, 16 MiB 5962 and 6692; 8 ranks, far ones, 256
// KiB 163 and 256, 1 MiB 811 and 568. By leaders_in_order and by `direct`, which copies by the
// string instruction: 4 ranks, far, 512 KiB 109 and 62, 1 MiB 207 and 143, 4 MiB 974 and 812.
constexpr std::size_t kOrderedPlainBytes = 64 * 1024;
constexpr std::size_t kOrderedPlainBytesMax = 1024 * 1024;

// Up to so much, ranks that have cores of their own need no addresses for plain memory. Source: two
// near cores of an EPYC, all_gather, with and without exchanging them, us: 64 KiB 1.74 and 1.50,
// 256 KiB 5.3 and 5.0, 1 MiB 28.3 and 27.2.
constexpr std::size_t kOwnCorePlainBytesMax = 256 * 1024;

// From so much on, two ranks with cores of their own send plain memory that they add up whole: as
// many bytes as in halves and back, in one message each way instead of two that wait for each
// other, and what is read a second time is in the near cache. Source: two cores of an EPYC, plain
// all_reduce, in halves and whole, us: far 8 MiB 542 and 634, 16 MiB 1790 and 1535, 32 MiB 4106 and
// 3720, 64 MiB 8443 and 7697; near 16 MiB 1411 and 1550, 32 MiB 3397 and 3362, 64 MiB 7185 and
// 6808.
constexpr std::size_t kWholePlainBytes = std::size_t{16} << 20;
constexpr std::string_view kWhole = "one_shot";

}  // namespace

// Whether calls find out which of several plans is the quickest, unless somebody has settled their
// algorithm. Those that must make the same sums do: all that keep the order make them.
bool Planner::State::tries_others(const PlanQuery& query, const Choices& choices,
                                  bool plain) const {
  const bool many = plain && machine.most_sharers() > 2;
  const std::size_t most = many ? kTriedPlainBytesOfMany : kTriedBytes;
  return machine.takes_turns() && query.bytes() <= most && options.algorithm.empty() &&
         !choices.by_measurement;
}

// Whether what combines is only tried, beside what is the quickest else.
bool Planner::State::finds_out_combining(const PlanQuery& query, const Choices& choices) const {
  return options.memory_shared && query.bytes() > kCombinedAnywayBytes &&
         tries_others(query, choices, false);
}

// What does not combine comes first of what is sorted by time.
void Planner::State::combine_later(std::vector<Choice>& sorted) {
  const auto first = std::find_if(sorted.begin(), sorted.end(), [](const Choice& choice) {
    return choice.not_possible.empty() && !choice.entry->algorithm->combines();
  });
  if (first != sorted.end()) std::rotate(sorted.begin(), first, first + 1);
}

// The best by other algorithms, of what is sorted by time; the first is the choice. If `also` can
// be had in time it is one of them.
std::vector<Choice> Planner::State::others(const std::vector<Choice>& sorted,
                                           const Algorithm* also) {
  std::vector<Choice> others;
  const auto is_known = [&](const Choice& choice) {
    const auto same = [&](const Choice& other) {
      return other.entry->algorithm == choice.entry->algorithm;
    };
    return same(sorted.front()) || std::any_of(others.begin(), others.end(), same);
  };
  for (const Choice& choice : sorted) {
    const bool in_time = choice.time_ns <= kOthersTime * sorted.front().time_ns;
    if (!choice.not_possible.empty() || !in_time || is_known(choice)) continue;
    if (others.size() < kOthersMax)
      others.push_back(choice);
    else if (choice.entry->algorithm == also)
      others.back() = choice;
  }
  return others;
}

// For plain memory: what is quickest for other memory is tried, too, and some of the plans that
// exchange addresses, though to no avail. Of ranks with cores of their own only the usual plan, and
// only where the system might copy, as it does between known addresses.
std::vector<Choice> Planner::State::plain_others(const PlanQuery& query,
                                                 const std::vector<Choice>& plain,
                                                 const Choices& choices) const {
  if (goes_whole(query, choices)) return {choices.list.front()};
  if (!tries_others(query, choices, true)) return {};
  std::vector<Choice> all = others(plain, choices.list.front().entry->algorithm);
  if (query.bytes() <= kDirectThoughPlainBytes) return all;
  std::size_t room = kDirectThoughPlain;
  for (const Choice& staged : plain) {
    if (staged.time_ns > kOthersTime * plain.front().time_ns) break;
    const auto is_its_twin = [&](const Choice& choice) {
      return choice.settings.direct && choice.not_possible.empty() &&
             choice.entry->algorithm == staged.entry->algorithm;
    };
    const auto twin = std::find_if(choices.list.begin(), choices.list.end(), is_its_twin);
    if (room == 0 || twin == choices.list.end()) continue;
    all.push_back(*twin);
    --room;
  }
  return all;
}

// Whether plain memory has a plan of its own because it is so much.
bool Planner::State::goes_whole(const PlanQuery& query, const Choices& choices) const {
  return ranks() == 2 && !machine.takes_turns() && query.collective == Collective::all_reduce &&
         query.bytes() >= kWholePlainBytes && !choices.by_measurement;
}

// Of ranks with cores of their own, to whom plain memory is as dear as other memory: the best that
// needs no addresses. What is longer may be copied by the system, which does; sums of so much that
// they go whole are more quickly sent.
std::vector<Choice> Planner::State::plain_of_own_cores(const PlanQuery& query,
                                                       const Choices& choices) const {
  const bool some_is_plain = options.direct_bytes_min > 0;
  const bool whole = goes_whole(query, choices);
  if (!some_is_plain || (query.bytes() > kOwnCorePlainBytesMax && !whole)) return {};
  const auto staged =
      std::find_if(choices.list.begin(), choices.list.end(), [&](const Choice& choice) {
        return choice.not_possible.empty() && !choice.settings.direct &&
               (!whole || choice.entry->algorithm->name == kWhole);
      });
  if (staged == choices.list.end()) return {};
  return {*staged};
}

// Only what all ranks can agree on (plan.hpp). Where ranks share cores, all_reduce, which is priced
// for it.
bool Planner::State::has_plain_plans(const PlanQuery& query) const {
  if (query.varied || !tries(false)) return false;
  if (machine.takes_turns()) return plain_machine && query.collective == Collective::all_reduce;
  return std::find(kBegunByAll.begin(), kBegunByAll.end(), query.collective) != kBegunByAll.end();
}

std::vector<std::size_t> Planner::State::plain_slice_choices(const Algorithm& algorithm) const {
  std::vector<std::size_t> choices = slice_choices(algorithm);
  const bool settled = options.slice_bytes > 0;
  if (!settled && machine.most_sharers() > 2 && algorithm.name.starts_with(kLeaders))
    choices.front() = std::min(choices.front(), kSlicesOfMany);
  return choices;
}

// What is cheapest where no buffer can be addressed, and no addresses need be exchanged, and the
// further ones that are to be tried.
std::vector<Choice> Planner::State::plain_choices(const PlanQuery& query, const Choices& choices) {
  const bool finds_out = finds_out_combining(query, choices);
  if (!has_plain_plans(query) || !(choices.list.front().settings.direct || finds_out)) return {};
  if (!machine.takes_turns()) return plain_of_own_cores(query, choices);
  const bool in_order = form_of(query) != ReductionForm::any;
  const std::size_t each = query.bytes() / static_cast<std::size_t>(ranks());
  const bool between = each >= kOrderedPlainBytes && each <= kOrderedPlainBytesMax;
  const bool is_tried = tries_others(query, choices, true);
  const Result<std::vector<std::unique_ptr<Entry>>*> entries = family(query);
  if (!entries.ok()) return {};
  std::vector<Choice> found;
  for (const std::unique_ptr<Entry>& entry : **entries) {
    if (!entry->not_priced.empty() || !needless(*entry->algorithm, query, true).empty()) continue;
    if (in_order && (!out_of_order(*entry, query).empty() ||
                     !(between || is_tried || entry->algorithm->in_turn())))
      continue;
    Choice choice = settle(*entry, Pricing::plain, query, channel_choices(),
                           plain_slice_choices(*entry->algorithm));
    if (choice.not_possible.empty()) found.push_back(std::move(choice));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Choice& x, const Choice& y) { return x.time_ns < y.time_ns; });
  if (finds_out) combine_later(found);
  return found;
}

}  // namespace tutti::collectives

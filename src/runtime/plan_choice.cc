// plan_choice.cc: see plan_choice.hpp.
#include "runtime/plan_choice.hpp"

#include "base/assert.hpp"

namespace tutti::runtime {
namespace {

// The first plan is the one that is predicted to be the quickest.
constexpr auto kWorths = [] {
  std::array<double, QuickestWay::kMostWays> worths;
  worths.fill(PlanChoice::kWorthShare);
  worths.front() = 1;
  return worths;
}();

}  // namespace

std::size_t PlanChoice::kind_of(Collective collective, std::size_t bytes) {
  using collectives::kBegunByAll;
  const auto* const what = std::find(kBegunByAll.begin(), kBegunByAll.end(), collective);
  TUTTI_ASSERT(what != kBegunByAll.end(), "all ranks meet in such a call");
  const auto power = static_cast<std::size_t>(std::bit_width(bytes));
  return static_cast<std::size_t>(what - kBegunByAll.begin()) * kSizes +
         std::min(power, kSizes - 1);
}

PlanChoice::Choice PlanChoice::foretell(Collective collective, std::size_t bytes,
                                        const Plans& plans) {
  TUTTI_ASSERT(plans.usual <= QuickestWay::kMostWays && plans.plain <= QuickestWay::kMostWays,
               "a word has room for so many");
  if (words_.size() < kWords) return {};
  const std::size_t kind = kind_of(collective, bytes);
  foretold_ = {kind, bytes, heard(kind, kinds_[kind].calls + 1, plans), plans};
  return foretold_.choice;
}

PlanChoice::Choice PlanChoice::begin_foretold(std::uint64_t now) {
  if (words_.size() < kWords) return {};
  if (leads_ && begun_ != 0) took(now - begun_);
  begun_ = now;
  latest_ = foretold_;
  Kind& kind = kinds_[latest_.kind];
  const std::uint64_t call = ++kind.calls;
  if (leads_) {
    const bool alone = (kind.met ? latest_.plans.plain : latest_.plans.usual) == 1;
    const Choice next{kind.met,
                      alone ? 0 : times_of(latest_.plans, kind.met, latest_.bytes).ways.next()};
    if (next != latest_.choice)
      words_[latest_.kind].store(said_of(call + 1, next, latest_.choice),
                                 std::memory_order_release);
  }
  return latest_.choice;
}

// What was said of a call of the kind may have meant one that has other plans.
PlanChoice::Choice PlanChoice::heard(std::size_t kind, std::uint64_t call,
                                     const Plans& plans) const {
  const std::uint64_t word = words_[kind].load(std::memory_order_acquire);
  const std::uint64_t said = call >= word >> 2 * kBits ? word : word >> kBits;
  Choice choice{(said & 1) != 0, said >> 1 & ((1U << (kBits - 1)) - 1)};
  if (choice.number >= (choice.plain ? plans.plain : plans.usual)) choice.number = 0;
  return choice;
}

void PlanChoice::met(bool own, bool any) {
  Kind& kind = kinds_[latest_.kind];
  kind.met = any;
  kind.is_others = any && !own;
  kind.trusted = 0;
}

void PlanChoice::met_by_plain_plan(bool own) {
  Kind& kind = kinds_[latest_.kind];
  kind.met = own || (kind.is_others && ++kind.trusted < kTrusted);
}

PlanChoice::Times& PlanChoice::times_of(const Plans& plans, bool plain, std::size_t bytes) {
  const Key key(plans.hash, plain);
  if (const auto known = times_.find(key); known != times_.end()) return known->second;
  if (times_.size() >= kTimesKept) times_.clear();
  const std::size_t ways = plain ? plans.plain : plans.usual;
  return times_
      .emplace(key, Times{QuickestWay({.worth = kWorths,
                                       .at_a_time = calls_of_try(bytes),
                                       .ways = ways,
                                       .of_mean = kOfMean,
                                       .most = kMostOfMean})})
      .first->second;
}

// From the beginning of a call to that of the next one: where ranks share cores, what a call spares
// itself may be what their other work has to wait for, and what it leaves in another core's cache
// makes that work dearer. And what takes no notable part of a program's time is left as it is. Two
// calls in a row by the same plan count together, since ranks of a core may lead in turn.
void PlanChoice::took(std::uint64_t ticks) {
  const auto& [kind, bytes, choice, plans] = latest_;
  const std::size_t ways = choice.plain ? plans.plain : plans.usual;
  if (ways == 1 || bytes == 0) return;
  Times& times = times_of(plans, choice.plain, bytes);
  const double time = static_cast<double>(ticks) / static_cast<double>(bytes);
  const bool in_a_row = times.latest == choice.number;
  // The first one of a row may be the quicker one of two, but not the least of all.
  times.ways.took(choice.number, in_a_row ? (time + times.latest_time) / 2 : 2 * time);
  times.latest = choice.number;
  times.latest_time = time;
}

}  // namespace tutti::runtime

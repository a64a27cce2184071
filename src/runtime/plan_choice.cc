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

PlanChoice::Choice PlanChoice::begin(Collective collective, std::size_t bytes, const Plans& plans,
                                     std::uint64_t now) {
  TUTTI_ASSERT(plans.usual <= QuickestWay::kMostWays && plans.plain <= QuickestWay::kMostWays,
               "a word has room for so many");
  if (words_.size() < kWords) return {};
  if (leads_ && begun_ != 0) took(now - begun_);
  begun_ = now;
  kind_ = kind_of(collective, bytes);
  bytes_ = bytes;
  plans_ = plans;
  const std::uint64_t call = ++kinds_[kind_].calls;
  choice_ = heard(kind_, call, plans);
  if (leads_) {
    const bool plain = kinds_[kind_].met;
    const bool alone = (plain ? plans.plain : plans.usual) == 1;
    const Choice next{plain, alone ? 0 : times_of(plans, plain).ways.next()};
    if (next != choice_)
      words_[kind_].store(said_of(call + 1, next, choice_), std::memory_order_release);
  }
  return choice_;
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
  Kind& kind = kinds_[kind_];
  kind.met = any;
  kind.is_others = any && !own;
  kind.trusted = 0;
}

void PlanChoice::met_by_plain_plan(bool own) {
  Kind& kind = kinds_[kind_];
  kind.met = own || (kind.is_others && ++kind.trusted < kTrusted);
}

PlanChoice::Times& PlanChoice::times_of(const Plans& plans, bool plain) {
  const Key key(plans.hash, plain);
  if (const auto known = times_.find(key); known != times_.end()) return known->second;
  if (times_.size() >= kTimesKept) times_.clear();
  const std::size_t ways = plain ? plans.plain : plans.usual;
  return times_
      .emplace(key, Times{QuickestWay({.worth = kWorths,
                                       .at_a_time = kCallsOfTry,
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
  const std::size_t ways = choice_.plain ? plans_.plain : plans_.usual;
  if (ways == 1 || bytes_ == 0) return;
  Times& times = times_of(plans_, choice_.plain);
  const double time = static_cast<double>(ticks) / static_cast<double>(bytes_);
  const bool in_a_row = times.latest == choice_.number;
  // The first one of a row may be the quicker one of two, but not the least of all.
  times.ways.took(choice_.number, in_a_row ? (time + times.latest_time) / 2 : 2 * time);
  times.latest = choice_.number;
  times.latest_time = time;
}

}  // namespace tutti::runtime

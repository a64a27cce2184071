// Bags of atoms, interned.
#include "collectives/verifier_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tutti::collectives {
namespace {

// Schedules from outside may double a bag again and again.
std::int32_t saturating_add(std::int32_t a, std::int32_t b) {
  return a > std::numeric_limits<std::int32_t>::max() - b ? std::numeric_limits<std::int32_t>::max()
                                                          : a + b;
}

// Every rank's contribution is in, once, and all are of the same chunk.
bool is_complete(const ValueTable::Bag& bag, int ranks) {
  if (bag.size() != static_cast<std::size_t>(ranks)) return false;
  for (std::size_t i = 0; i < bag.size(); ++i)
    if (bag[i].times != 1 || bag[i].atom.rank != static_cast<Rank>(i) ||
        bag[i].atom.chunk != bag[0].atom.chunk)
      return false;
  return true;
}

std::string describe(const ValueTable::Bag& bag) {
  constexpr std::size_t kShown = 8;
  std::string text = "{";
  for (std::size_t i = 0; i < std::min(bag.size(), kShown); ++i) {
    if (i > 0) text += ", ";
    text += fmt::format("{}.{}", bag[i].atom.rank, bag[i].atom.chunk);
    if (bag[i].times > 1) text += fmt::format(" x{}", bag[i].times);
  }
  if (bag.size() > kShown) text += fmt::format(", ... {} in all", bag.size());
  return text + "}";
}

}  // namespace

ValueTable::ValueTable() : bags_(1) {}

Value ValueTable::of(Atom atom) { return intern({Term{atom, 1}}); }

Value ValueTable::intern(Bag bag) {
  const auto next = static_cast<std::int32_t>(bags_.size());
  const auto [place, is_new] = known_bags_.try_emplace(bag, next);
  if (is_new) bags_.push_back(std::move(bag));
  return Value{place->second, false};
}

Value ValueTable::sum(std::span<const Value> values) {
  std::vector<std::int32_t> key;
  for (const Value& value : values) key.push_back(value.bag);
  std::sort(key.begin(), key.end());
  if (const auto known = known_sums_.find(key); known != known_sums_.end())
    return Value{known->second, false};
  Bag terms;
  for (std::int32_t id : key) {
    const Bag& bag = bags_[static_cast<std::size_t>(id)];
    terms.insert(terms.end(), bag.begin(), bag.end());
  }
  std::sort(terms.begin(), terms.end());
  Bag sum;
  for (const Term& term : terms) {
    if (!sum.empty() && sum.back().atom == term.atom)
      sum.back().times = saturating_add(sum.back().times, term.times);
    else
      sum.push_back(term);
  }
  const Value value = intern(std::move(sum));
  known_sums_.emplace(std::move(key), value.bag);
  return value;
}

std::string ValueTable::describe(Value value) const {
  if (!value.defined()) return "nothing defined";
  return collectives::describe(bag(value)) + (value.finished ? " finished" : "");
}

std::optional<Value> combine(ValueTable& table, int ranks, StepKind kind, bool finish,
                             std::span<const Value> sources, std::string& reason) {
  for (const Value& source : sources) {
    if (!source.defined()) {
      reason = "reads what nobody has written";
      return std::nullopt;
    }
    if (source.finished && (finish || sources.size() > 1)) {
      reason = "goes on with a result that is finished";
      return std::nullopt;
    }
  }
  if (kind == StepKind::copy || (sources.size() == 1 && !finish)) return sources[0];
  Value value = sources.size() == 1 ? sources[0] : table.sum(sources);
  if (finish && !is_complete(table.bag(value), ranks)) {
    reason = "finishes what is not complete: " + table.describe(value);
    return std::nullopt;
  }
  value.finished = finish;
  return value;
}

std::string judge(const ValueTable& table, const Requirement& requirement, Value value) {
  if (requirement.rule == Requirement::Rule::anything) return {};
  if (!value.defined()) return "holds nothing defined";
  const ValueTable::Bag& bag = table.bag(value);
  std::size_t next = 0;
  bool right = true;
  for (const ValueTable::Term& term : bag) {
    right = right && next < requirement.atoms.size() && term.atom == requirement.atoms[next++];
    if (requirement.rule == Requirement::Rule::exactly) right = right && term.times == 1;
  }
  if (!right || next != requirement.atoms.size()) {
    ValueTable::Bag wanted;
    for (const Atom& atom : requirement.atoms) wanted.push_back({atom, 1});
    return "holds " + table.describe(value) + " instead of " + describe(wanted);
  }
  if (value.finished != requirement.finished)
    return requirement.finished ? "was never finished" : "was finished";
  return {};
}

}  // namespace tutti::collectives

// verifier_values.hpp: what a chunk holds, as the verifier sees it: not numbers but a bag of atoms
// (whose contributions, how often) and whether it has been finished. Equal bags are one Value, so
// that comparing is cheap and adding the same bags again is a look-up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/contract.hpp"

namespace tutti::collectives {

// The content of one chunk. Comparable within one ValueTable.
struct Value {
  std::int32_t bag = 0;  // 0: undefined
  bool finished = false;

  bool defined() const { return bag != 0; }
  friend bool operator==(const Value&, const Value&) = default;
};

class ValueTable {
 public:
  struct Term {
    Atom atom;
    std::int32_t times = 1;

    friend auto operator<=>(const Term&, const Term&) = default;
  };
  using Bag = std::vector<Term>;  // ascending atoms

  ValueTable();

  Value of(Atom atom);
  // All bags in one.
  Value sum(std::span<const Value> values);

  const Bag& bag(Value value) const { return bags_[static_cast<std::size_t>(value.bag)]; }
  std::string describe(Value value) const;

 private:
  Value intern(Bag bag);

  std::vector<Bag> bags_;
  std::map<Bag, std::int32_t> known_bags_;
  std::map<std::vector<std::int32_t>, std::int32_t> known_sums_;
};

// What a copy or reduce of `sources` makes of them for a collective among `ranks`, or why it may
// not: `reason` says so then.
std::optional<Value> combine(ValueTable& table, int ranks, StepKind kind, bool finish,
                             std::span<const Value> sources, std::string& reason);

// What is wrong with `value` under `requirement`; empty when nothing is.
std::string judge(const ValueTable& table, const Requirement& requirement, Value value);

}  // namespace tutti::collectives

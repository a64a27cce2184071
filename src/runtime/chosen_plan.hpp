// chosen_plan.hpp: the plans that one plan holds, as ranks choose among them (plan_choice.hpp).
#pragma once

#include <cstdint>

#include "collectives/plan.hpp"
#include "runtime/plan_choice.hpp"

namespace tutti::runtime {

// Requires  usual.plain is not null.
inline PlanChoice::Plans plans_of(const collectives::Plan& usual) {
  std::uint64_t hash = usual.hash;
  const auto mix = [&](const collectives::Plan& plan) { hash = 31 * hash + plan.hash; };
  for (const auto& other : usual.others) mix(*other);
  mix(*usual.plain);
  for (const auto& other : usual.plain->others) mix(*other);
  return {1 + usual.others.size(), 1 + usual.plain->others.size(), hash};
}

inline const collectives::Plan& chosen_plan(const collectives::Plan& usual,
                                            const PlanChoice::Choice& choice) {
  const collectives::Plan& first = choice.plain ? *usual.plain : usual;
  return choice.number == 0 ? first : *first.others[choice.number - 1];
}

}  // namespace tutti::runtime

// table.hpp: every algorithm that Tutti knows, in one visible table. There is no registration:
// an algorithm exists when it stands here.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "collectives/builder.hpp"

namespace tutti::collectives {

std::span<const Algorithm> all_algorithms();

// Those that serve `collective`, in table order.
std::vector<const Algorithm*> algorithms_for(Collective collective);

// Errors: invalid_argument that lists the names which exist for the collective.
Result<const Algorithm*> find_algorithm(Collective collective, std::string_view name);

}  // namespace tutti::collectives

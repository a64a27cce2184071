// making.hpp: the ways to a new communicator, as jobs of a group.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nccl/group.hpp"
#include "nccl/init_config.hpp"
#include "nccl/unique_id.hpp"

namespace tutti::nccl {

// Rank `rank` of `size`, by an id. Errors  invalid_argument: there is no such rank.
Result<Job> join_job(const UniqueId& id, int size, int rank, const InitConfig& config);

// All ranks, in this process: `devices` has one for each. Not in a group: nobody waits for anybody.
// Errors  those of join_all().
Result<std::vector<std::shared_ptr<Comm>>> make_all(std::span<const int> devices);

// A part of `parent`; with a negative color none, but this rank takes part. The size of the part,
// and the rank in it, are known once it is made: until then the parent's are told.
Job split_job(const std::shared_ptr<Comm>& parent, int color, int key, const InitConfig& config);

// `parent` without those ranks, which do not call. `aborts`: what is under way is ended first, and
// the ranks that are left out may be dead; without it the parent is still good afterwards.
// Errors  invalid_argument: a rank that there is not, or this one, or nobody left out.
Result<Job> shrink_job(const std::shared_ptr<Comm>& parent, std::span<const int> excluded,
                       bool aborts, const InitConfig& config);

}  // namespace tutti::nccl

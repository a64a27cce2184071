// making.cc: see making.hpp.
#include "nccl/making.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/device_meeting.hpp"
#include "nccl/join.hpp"
#include "runtime/access.hpp"
#include "runtime/shrink.hpp"
#include "runtime/subset.hpp"

namespace tutti::nccl {
namespace {

using runtime::CommunicatorAccess;

// Of one child; its making ends when the child is aborted.
CommIdentity child_of(const Comm& parent, const InitConfig& config) {
  CommIdentity child = parent.identity();
  child.rank = parent.rank();
  child.size = parent.size();
  child.blocking = config.blocking;
  child.name = config.name;
  child.copy_engines = config.copy_engines;
  return child;
}

Result<Communicator> as_communicator(Result<std::shared_ptr<runtime::CommunicatorState>> state) {
  TUTTI_TRY(state);
  return CommunicatorAccess::make(*std::move(state));
}

std::string numbers(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

}  // namespace

Result<Job> join_job(const UniqueId& id, int size, int rank, const InitConfig& config) {
  if (size < 1 || rank < 0 || rank >= size)
    return Status(StatusCode::invalid_argument,
                  fmt::format("there is no rank {} of {}", rank, size));
  Job job;
  job.comm = std::make_shared<Comm>(CommIdentity{rank, size, current_device(), config.blocking,
                                                 config.name, config.copy_engines});
  // Kept by whoever runs the job.
  job.maker = [id, size, rank, comm = job.comm.get()] {
    return join({id, rank, size, [comm] { return comm->bad_news(); }});
  };
  return job;
}

Result<std::vector<std::shared_ptr<Comm>>> make_all(std::span<const int> devices) {
  std::vector<DevicePlace> places;
  for (const int device : devices) {
    const auto place = device_of(device);
    TUTTI_TRY(place);
    places.push_back(*place);
  }
  auto communicators = join_all(static_cast<int>(devices.size()));
  TUTTI_TRY(communicators);
  const std::shared_ptr<DeviceGroup> together = group_of_process(places);
  std::vector<std::shared_ptr<Comm>> comms;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto comm = std::make_shared<Comm>(
        CommIdentity{static_cast<Rank>(i), static_cast<int>(devices.size()), places[i], true, {}});
    TUTTI_TRY(comm->make([&]() -> Result<Communicator> { return std::move((*communicators)[i]); },
                         together));
    comms.push_back(std::move(comm));
  }
  return comms;
}

Job split_job(const std::shared_ptr<Comm>& parent, int color, int key, const InitConfig& config) {
  Job job;
  job.parent = parent;
  if (color >= 0) job.comm = std::make_shared<Comm>(child_of(*parent, config));
  job.maker = [parent, color, key]() -> Result<Communicator> {
    TUTTI_TRY(parent->usable());
    const std::lock_guard lock(parent->in_use());
    auto made = parent->communicator().split(color, key);
    if (!made.ok()) return parent->note(made.status());
    return made;
  };
  return job;
}

Result<Job> shrink_job(const std::shared_ptr<Comm>& parent, std::span<const int> excluded,
                       bool aborts, const InitConfig& config) {
  std::vector<Rank> out(excluded.begin(), excluded.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (out.empty())
    return Status(StatusCode::invalid_argument, "no rank is excluded; name at least one");
  if (out.front() < 0 || out.back() >= parent->size())
    return Status(StatusCode::invalid_argument,
                  fmt::format("the excluded ranks {} are not all of the {} that there are",
                              numbers(out), parent->size()));
  if (std::binary_search(out.begin(), out.end(), parent->rank()))
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {} is excluded, and does not call", parent->rank()));
  Job job;
  job.parent = parent;
  job.comm = std::make_shared<Comm>(child_of(*parent, config));
  job.maker = [parent, out, aborts]() -> Result<Communicator> {
    if (!aborts) TUTTI_TRY(parent->usable());
    if (parent->phase() != Comm::Phase::ready) return parent->usable();
    // Whoever is inside a call of the parent is led out by its end.
    if (aborts) TUTTI_TRY(parent->revoke());
    const std::lock_guard lock(parent->in_use());
    runtime::CommunicatorState& state = CommunicatorAccess::state(parent->communicator());
    if (aborts) return as_communicator(runtime::shrink(state, out));
    std::vector<Rank> left;
    for (Rank rank = 0; rank < state.size(); ++rank)
      if (!std::binary_search(out.begin(), out.end(), rank)) left.push_back(rank);
    return as_communicator(runtime::make_subset(state, left));
  };
  return job;
}

}  // namespace tutti::nccl

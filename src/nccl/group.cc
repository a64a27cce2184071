// group.cc: see group.hpp.
#include "nccl/group.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/handles.hpp"

namespace tutti::nccl {
namespace {

// One after the other.
using Lane = std::vector<Job>;

Status do_job(const Job& job) {
  if (job.comm) return job.comm->make(job.maker);
  return job.maker().status();
}

std::vector<Lane> lanes_of(std::vector<Job> jobs) {
  std::vector<Lane> lanes;
  std::map<Comm*, std::size_t> of_parent;
  for (Job& job : jobs) {
    const auto [found, is_new] = of_parent.try_emplace(job.parent.get(), lanes.size());
    if (!job.parent || is_new)
      lanes.emplace_back().push_back(std::move(job));
    else
      lanes[found->second].push_back(std::move(job));
  }
  return lanes;
}

bool blocks(const Lane& lane) {
  return std::any_of(lane.begin(), lane.end(),
                     [](const Job& job) { return !job.comm || job.comm->blocking(); });
}

// The caller goes on; each communicator keeps the thread until it goes itself.
void do_behind(Lane lane) {
  const std::shared_ptr<Comm> keeper = lane.front().comm;
  std::thread thread([lane = std::move(lane)]() mutable {
    for (Job& job : lane) {
      static_cast<void>(do_job(job));
      job = {};
    }
  });
  keeper->made_by(std::move(thread));
}

// All at once, and waits for them. By lane and job: what it became.
std::vector<std::vector<Status>> do_here(const std::vector<Lane>& lanes) {
  std::vector<std::vector<Status>> outcomes(lanes.size());
  std::vector<std::thread> threads;
  const auto work = [&](std::size_t i) {
    for (const Job& job : lanes[i]) outcomes[i].push_back(do_job(job));
  };
  for (std::size_t i = 1; i < lanes.size(); ++i) threads.emplace_back(work, i);
  if (!lanes.empty()) work(0);
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

Result<double> predict(Comm& comm, std::span<const Call> calls) {
  TUTTI_TRY(comm.usable());
  const std::lock_guard lock(comm.in_use());
  double total_us = 0;
  for (const Call& call : calls) {
    const auto report = comm.communicator().explain(
        collective_of(call.kind).value_or(Collective::send_recv), call.count, call.type, call.peer);
    TUTTI_TRY(report);
    total_us += report->predicted_us;
  }
  return total_us;
}

}  // namespace

Group& Group::of_this_thread() {
  static thread_local Group group;
  return group;
}

void Group::add(Job job) { jobs_.push_back(std::move(job)); }

Status Group::add(const std::shared_ptr<Comm>& comm, void* stream, Call call) {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const Part& part) { return part.comm == comm; });
  if (found == parts_.end()) {
    parts_.push_back({comm, stream, {}});
    parts_.back().calls.push_back(std::move(call));
    return Status();
  }
  if (found->stream != stream)
    return Status(StatusCode::unsupported,
                  fmt::format("rank {}: {}: calls of one group on one communicator go on one "
                              "stream; end the group, or make one stream wait for the other",
                              comm->rank(), to_string(call.kind)));
  found->calls.push_back(std::move(call));
  return Status();
}

void Group::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

Status Group::finish() {
  if (depth_ == 0)
    return Status(StatusCode::unsupported, "no group was begun; call ncclGroupStart first");
  --depth_;
  return Status();
}

Status Group::end(bool& in_progress) {
  TUTTI_TRY(finish());
  if (depth_ > 0) return Status();
  const Status failure = std::exchange(failure_, Status());
  std::vector<Job> jobs = std::exchange(jobs_, {});
  std::vector<Part> parts = std::exchange(parts_, {});
  if (!failure.ok()) {
    for (const Job& job : jobs) *job.place = nullptr;
    return failure;
  }
  TUTTI_TRY(do_jobs(std::move(jobs), in_progress));
  return do_calls(parts);
}

Status Group::do_jobs(std::vector<Job> jobs, bool& in_progress) {
  std::vector<Lane> here;
  for (Lane& lane : lanes_of(std::move(jobs))) {
    for (const Job& job : lane) *job.place = job.comm ? give_handle(job.comm) : nullptr;
    if (blocks(lane)) {
      here.push_back(std::move(lane));
    } else {
      in_progress = true;
      do_behind(std::move(lane));
    }
  }
  const auto outcomes = do_here(here);
  Status first;
  for (std::size_t i = 0; i < here.size(); ++i)
    for (std::size_t j = 0; j < here[i].size(); ++j) {
      if (outcomes[i][j].ok()) continue;
      if (first.ok()) first = outcomes[i][j];
      // Of a communicator that could not be made the caller gets nothing to give back.
      static_cast<void>(take_comm(*here[i][j].place));
      *here[i][j].place = nullptr;
    }
  return first;
}

Status Group::do_calls(std::vector<Part>& parts) {
  std::vector<Part*> in_host_memory;
  std::vector<Open> open;
  for (Part& part : parts) {
    auto begun = part.comm->device_side().begin(*part.comm, part.stream, part.calls);
    TUTTI_TRY(begun);
    if (*begun)
      open.push_back({part.comm.get(), **std::move(begun)});
    else
      in_host_memory.push_back(&part);
  }
  TUTTI_TRY(enqueue_together(std::move(open)));
  return run_together(in_host_memory);
}

// Ranks that this thread speaks for may wait for one another, so each goes as far as it gets. Only
// when none gets any further is it others that they wait for.
Status Group::enqueue_together(std::vector<Open> open) {
  bool may_wait = false;
  while (!open.empty()) {
    bool has_moved = false;
    for (std::size_t i = 0; i < open.size(); ++i) {
      auto& [comm, enqueuing] = open[i];
      const auto before = enqueuing.place();
      const auto done = comm->device_side().advance(*comm, enqueuing, may_wait && i == 0);
      if (!done.ok()) {
        for (const Open& other : open)
          other.comm->device_side().give_up(*other.comm, other.enqueuing);
        return done.status();
      }
      has_moved |= *done || enqueuing.place() != before;
      if (*done) open.erase(open.begin() + static_cast<std::ptrdiff_t>(i--));
    }
    may_wait = !has_moved;
  }
  return Status();
}

Status Group::run_together(std::vector<Part*>& parts) {
  if (parts.size() == 1) {
    const std::lock_guard lock(parts.front()->comm->in_use());
    return parts.front()->comm->run(parts.front()->calls);
  }
  // Always in the same order, so that two threads cannot each have what the other wants.
  std::sort(parts.begin(), parts.end(),
            [](const Part* a, const Part* b) { return a->comm < b->comm; });
  std::vector<std::unique_lock<std::mutex>> locks;
  for (Part* part : parts) locks.emplace_back(part->comm->in_use());
  Status first;
  std::vector<std::vector<Work>> started(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto works = parts[i]->comm->start(parts[i]->calls);
    if (works.ok())
      started[i] = *std::move(works);
    else if (first.ok())
      first = works.status();
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (Work& work : started[i]) {
      const Status status = parts[i]->comm->note(work.wait());
      if (first.ok()) first = status;
    }
  return first;
}

Result<double> Group::simulate() {
  TUTTI_TRY(finish());
  if (depth_ > 0)
    return Status(StatusCode::unsupported, "only the outermost group can be simulated");
  const Status failure = std::exchange(failure_, Status());
  const std::vector<Job> jobs = std::exchange(jobs_, {});
  const std::vector<Part> parts = std::exchange(parts_, {});
  for (const Job& job : jobs) *job.place = nullptr;
  TUTTI_TRY(failure);
  if (!jobs.empty())
    return Status(StatusCode::unsupported, "the making of communicators cannot be simulated");
  double longest_us = 0;
  for (const Part& part : parts) {
    const Result<double> time_us = predict(*part.comm, part.calls);
    TUTTI_TRY(time_us);
    longest_us = std::max(longest_us, *time_us);
  }
  return longest_us;
}

}  // namespace tutti::nccl

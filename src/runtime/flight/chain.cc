// A search along the waits. Every edge is a true lack, so at least one path ends with a rank that
// waits for nobody; others may close a circle, because a rank has many steps that lack something.
#include "runtime/flight/chain.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "runtime/flight/text.hpp"

namespace tutti::runtime::flight {
namespace {

// A communicator in its process.
struct Seat {
  const Process* process = nullptr;
  const CommunicatorView* view = nullptr;
};

Seat find(const std::vector<Process>& processes, const Where& wanted) {
  for (const Process& process : processes)
    for (const CommunicatorView& view : process.recorder.communicators)
      if (where(view) == wanted) return {&process, &view};
  return {};
}

// Another communicator of the same process and job in which it waits: a process that does nothing
// in our call may be waiting in one of its other communicators. Where ranks are threads, nobody can
// tell which of them are the same thread's.
const CommunicatorView* waits_elsewhere(const Seat& seat) {
  const CommunicatorView* found = nullptr;
  for (const CommunicatorView& view : seat.process->recorder.communicators) {
    if (&view == seat.view || view.job != seat.view->job) continue;
    if (view.context == seat.view->context) return nullptr;
    if (view.wait) found = &view;
  }
  return found;
}

bool same_call(const Signature& a, const Signature& b) {
  return a.sequence == b.sequence && a.collective == b.collective && a.count == b.count &&
         a.type == b.type && a.root == b.root && (!is_reduction(a.collective) || a.op == b.op);
}

// How sure it is that the end of a path is where the trouble is, the surest first.
enum class Trouble { stopped, failed, other_call, absent, busy, not_found };

struct End {
  Trouble trouble = Trouble::not_found;
  std::string why;
};

// What a rank that waits for nobody does instead.
End excuse(const CommunicatorView& view, const Signature& call) {
  const CallView* latest = view.latest();
  if (latest == nullptr) return {Trouble::absent, "has not made a call yet"};
  const std::string name = describe_signature(latest->signature);
  if (!latest->running)
    return {Trouble::absent,
            fmt::format("is not in the call: it computes, since {} ended {:.1f} s ago", name,
                        std::max(0.0, latest->started_ago - latest->took))};
  if (!same_call(latest->signature, call))
    return {Trouble::other_call, fmt::format("made another call: {}", name)};
  return {Trouble::busy,
          "is in the call, but not waiting in it: it computes, or has just moved on"};
}

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// A rank that was reached, and from which step.
struct Step {
  Where where;
  std::size_t from = kNowhere;  // kNowhere: the waiter's own wait
  Seat seat;
};

// Where a path ends, or nothing where it goes on.
std::optional<End> end_of(Seat& seat, const Signature& call) {
  if (seat.process == nullptr) return End{Trouble::not_found, "was not found on this host"};
  if (seat.process->stopped())
    return End{Trouble::stopped, "is stopped (by a signal or a debugger)"};
  if (seat.view->failure)
    return End{Trouble::failed,
               fmt::format("has failed ({})", to_string(seat.view->failure->code))};
  if (!seat.view->wait)
    if (const CommunicatorView* elsewhere = waits_elsewhere(seat)) seat.view = elsewhere;
  if (seat.view->wait) return std::nullopt;
  return excuse(*seat.view, call);
}

// Its rank in the communicator of `asked`: of its process, when it was reached in another one.
Rank rank_in(const Step& step, const Where& asked, Rank otherwise) {
  if (step.where.context == asked.context) return step.where.rank;
  if (step.seat.process == nullptr) return otherwise;
  for (const CommunicatorView& view : step.seat.process->recorder.communicators)
    if (view.job == asked.job && view.context == asked.context) return view.rank;
  return otherwise;
}

// All that can be reached, nearest first; and the end that counts.
struct Search {
  std::vector<Step> steps;
  std::optional<std::size_t> best;
  End end;
};

Search search(const std::vector<Process>& processes, const Where& waiter,
              std::span<const Rank> awaited, const Signature& call) {
  Search found;
  const auto reach = [&](std::uint64_t job, std::uint64_t context, Rank rank, std::size_t from) {
    const Where next{job, context, rank};
    const bool known = std::any_of(found.steps.begin(), found.steps.end(),
                                   [&](const Step& step) { return step.where == next; });
    if (!known && next != waiter) found.steps.push_back({next, from, find(processes, next)});
  };
  for (const Rank rank : awaited) reach(waiter.job, waiter.context, rank, kNowhere);
  for (std::size_t at = 0; at < found.steps.size(); ++at) {
    const auto end = end_of(found.steps[at].seat, call);
    if (end && (!found.best || end->trouble < found.end.trouble)) {
      found.best = at;
      found.end = *end;
    }
    if (end) continue;
    const CommunicatorView& view = *found.steps[at].seat.view;
    for (const Rank rank : view.wait->ranks) reach(view.job, view.context, rank, at);
  }
  return found;
}

// Who failed may name who it was that made it fail.
void pass_blame(const std::vector<Process>& processes, const Where& waiter,
                const FailureView& failure, Culprit& culprit) {
  if (failure.culprit == Status::kUnknownRank || failure.culprit == culprit.rank) return;
  culprit.why = fmt::format("made rank {} fail ({})", culprit.rank, to_string(failure.code));
  culprit.rank = failure.culprit;
  const Seat blamed = find(processes, {waiter.job, waiter.context, failure.culprit});
  culprit.pid = blamed.process != nullptr ? blamed.process->pid : 0;
}

}  // namespace

Culprit find_culprit(const std::vector<Process>& processes, const Where& waiter,
                     std::span<const Rank> awaited, const Signature& call) {
  const Search found = search(processes, waiter, awaited, call);
  Culprit culprit;
  culprit.rank = awaited.front();
  if (!found.best) {
    culprit.why = "waits too, in a circle of ranks that wait for each other";
    const Seat seat = find(processes, {waiter.job, waiter.context, culprit.rank});
    culprit.pid = seat.process != nullptr ? seat.process->pid : 0;
    return culprit;
  }
  const Step& last = found.steps[*found.best];
  for (std::size_t at = *found.best; found.steps[at].from != kNowhere;) {
    const Step& from = found.steps[found.steps[at].from];
    culprit.links.push_back({rank_in(from, waiter, from.where.rank),
                             rank_in(found.steps[at], waiter, found.steps[at].where.rank)});
    at = found.steps[at].from;
  }
  std::reverse(culprit.links.begin(), culprit.links.end());
  culprit.why = found.end.why;
  const bool ours = last.where.context == waiter.context;
  culprit.rank = rank_in(last, waiter, culprit.rank);
  if (last.seat.process == nullptr) return culprit;
  culprit.pid = last.seat.process->pid;
  if (ours && found.end.trouble == Trouble::failed)
    pass_blame(processes, waiter, *last.seat.view->failure, culprit);
  return culprit;
}

std::optional<Culprit> find_culprit_of(const std::vector<Process>& processes,
                                       const CommunicatorView& view) {
  const CommunicatorView* waiter = view.wait ? &view : nullptr;
  if (waiter == nullptr)
    for (const Process& process : processes)
      for (const CommunicatorView& other : process.recorder.communicators) {
        if (other.job != view.job || other.context != view.context || !other.wait) continue;
        if (waiter == nullptr || other.wait->since_ago > waiter->wait->since_ago) waiter = &other;
      }
  if (waiter == nullptr || waiter->latest() == nullptr) return std::nullopt;
  return find_culprit(processes, where(*waiter), waiter->wait->ranks, waiter->latest()->signature);
}

std::string to_string(const Culprit& culprit) {
  std::string text;
  for (const Link& link : culprit.links)
    text += fmt::format("rank {} waits for rank {}; ", link.rank, link.awaited);
  const std::string process = culprit.pid > 0 ? fmt::format(" (pid {})", culprit.pid) : "";
  return text + fmt::format("rank {}{} {}", culprit.rank, process, culprit.why);
}

}  // namespace tutti::runtime::flight

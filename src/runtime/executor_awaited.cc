// Whom a call waits for, worked out from what its steps lack. Asked seldom, when a call has not
// moved for a while: to tell people, and the ranks that wait for us.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/executor.hpp"

namespace tutti::runtime {
namespace {

std::size_t index(int value) { return static_cast<std::size_t>(value); }

}  // namespace

void Executor::Awaited::add(Rank awaited, std::string text) {
  if (std::find(all.begin(), all.end(), awaited) != all.end()) return;
  all.push_back(awaited);
  if (rank != Status::kUnknownRank) return;
  rank = awaited;
  what = std::move(text);
}

Executor::Awaited Executor::awaited() {
  Awaited found;
  if (done()) return found;
  if (is_combining()) {
    find_awaited_parts(found);
    return found;
  }
  if (!short_->empty()) show_phases();
  // The first slice that is not complete waits for nothing but peers; later ones may wait for it.
  for (int channel = 0; channel < static_cast<int>(channels_.size()); ++channel) {
    Channel& c = channels_[index(channel)];
    if (c.first_slice >= slices_) continue;
    const std::vector<CallStep>& steps = program_->steps();
    Phase* phases = c.phases.data() + c.first_slice % window_ * steps.size();
    for (std::size_t s = 0; s < steps.size(); ++s) {
      Attempt attempt{channel, c.first_slice, steps[s], phases, phases[s]};
      if (attempt.phase != Phase::complete) find_awaited(attempt, found);
    }
  }
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].arrival_due) add_absent(peer, found);
  if (!found.all.empty() || !keeps_unsent_ || transport_.flushed()) return found;
  for (const CallPeer& peer : program_->peers())
    if (!peer.sends.empty()) found.add(peer.rank, fmt::format("rank {} to take data", peer.rank));
  return found;
}

// What a short program has come to, as any other would show it.
void Executor::show_phases() {
  channels_[0].phases.resize(program_->steps().size());
  reset_channels();
  std::vector<Phase>& phases = channels_[0].phases;
  std::uint64_t bit = 1;
  for (std::size_t s = 0; s < phases.size(); ++s, bit <<= 1) {
    const ShortStep& step = short_->steps()[s];
    const bool lands = step.may_land && call_.signature.direct;
    const bool granted = !lands || (short_done_.granted & bit) != 0;
    if ((short_done_.complete & bit) != 0)
      phases[s] = Phase::complete;
    else if ((short_done_.ran & bit) != 0)
      phases[s] = Phase::offered;
    else if (granted && may_begin(step))
      phases[s] = Phase::granted;
  }
}

void Executor::add_absent(std::size_t peer, Awaited& found) const {
  found.add(rank_of(peer), fmt::format("rank {} to make the same call", rank_of(peer)));
}

// The same questions as try_step() asks, without doing anything about the answers.
void Executor::find_awaited(Attempt& attempt, Awaited& found) {
  if (call_.blocks != nullptr && !reaches(attempt)) return;
  if (attempt.phase == Phase::waiting) {
    if (!dependencies_complete(attempt)) return;
    for (const CallOperand& source : program_->sources(attempt.step))
      if (source.is_message && source.way == Way::undecided) add_absent(source.stream, found);
    return;
  }
  const bool reads = attempt.phase == Phase::granted;
  if (reads && !find_awaited_sources(attempt, found)) return;
  measure(attempt);
  for (const CallOperand& destination : program_->destinations(attempt.step))
    if (destination.is_message) find_awaited_destination(attempt, destination, found);
}

// True when all of them are ready.
bool Executor::find_awaited_sources(Attempt& attempt, Awaited& found) {
  bool ready = true;
  for (const CallOperand& source : program_->sources(attempt.step)) {
    if (!source.is_message) continue;
    if (peers_[source.stream].arrival_due || source.way == Way::undecided) {
      add_absent(source.stream, found);
      ready = false;
      continue;
    }
    Endpoint& endpoint = *stream(attempt.channel, source.stream).endpoint;
    const std::uint64_t number = number_received(attempt, source);
    Frame frame;
    const bool came = source.way == Way::push ? endpoint.signalled(Signal::produced) > number
                      : source.way == Way::pull
                          ? source.ready || endpoint.signalled(Signal::offered) > number
                          : endpoint.peek(frame);
    if (!came)
      found.add(rank_of(source.stream), fmt::format("data from rank {}", rank_of(source.stream)));
    ready = ready && came;
  }
  return ready;
}

void Executor::find_awaited_destination(Attempt& attempt, const CallOperand& destination,
                                        Awaited& found) {
  // Who enters a direct call says so at once; in others, its word comes with its first data.
  const bool absent = call_.signature.direct && peers_[destination.stream].arrival_due;
  if (absent || destination.way == Way::undecided) return add_absent(destination.stream, found);
  Endpoint& endpoint = *stream(attempt.channel, destination.stream).endpoint;
  const std::uint64_t number = number_sent(attempt, destination);
  bool taken = true;
  if (attempt.phase == Phase::offered)
    taken = destination.way != Way::pull || endpoint.signalled(Signal::taken) > number;
  else if (destination.way == Way::push)
    taken = destination.ready || endpoint.signalled(Signal::granted) > number;
  else if (destination.way == Way::staged)  // a step may have sent some of its messages
    taken =
        !is_next_to_send(attempt, destination) || endpoint.reserve(attempt.bytes).data() != nullptr;
  if (taken) return;
  found.add(rank_of(destination.stream),
            fmt::format("rank {} to take data", rank_of(destination.stream)));
}

}  // namespace tutti::runtime

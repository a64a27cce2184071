// Collects what every event may have to wait for, whichever way messages go, and sorts.
#include "runtime/gpu/encode_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace tutti::runtime::gpu {
namespace {

using collectives::DirectForm;
using collectives::LoweredDependency;
using collectives::LoweredOperand;
using collectives::LoweredProgram;
using collectives::LoweredStep;

// Messages that a queue holds at the least (lowered.hpp).
constexpr std::size_t kQueueMessages = 2;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

bool may_land(const LoweredStep& step) {
  for (const LoweredOperand& source : step.sources)
    if (source.kind == Operand::Kind::message && source.direct == DirectForm::push) return true;
  return false;
}

// The ends of one message, as numbers of events: that of carrying out a step; before it stands that
// of granting.
struct Ends {
  int sender = -1;
  int receiver = -1;
  const LoweredOperand* received = nullptr;
};

class Order {
 public:
  explicit Order(std::span<const LoweredProgram> programs) : programs_(programs) {
    for (const LoweredProgram& program : programs) {
      first_.push_back(static_cast<int>(2 * steps_));
      steps_ += program.steps.size();
    }
    after_.resize(2 * steps_);
    waits_.resize(2 * steps_);
    for (const LoweredProgram& program : programs) find_messages(program);
    for (const LoweredProgram& program : programs) add_steps(program);
    for (const auto& [stream, messages] : streams_) add_stream(messages);
  }

  Result<std::vector<std::vector<Event>>> sort() {
    // Early steps first, so that ranks move side by side.
    using Next = std::tuple<std::int32_t, bool, std::size_t>;  // step, carried out, rank
    std::priority_queue<Next, std::vector<Next>, std::greater<>> ready;
    const auto add = [&](std::size_t rank, int event) {
      const int number = event - first_[rank];
      if (waits_[at(event)] == 0) ready.emplace(number / 2, number % 2 == 1, rank);
    };
    for (std::size_t rank = 0; rank < programs_.size(); ++rank)
      for (std::size_t e = 0; e < 2 * programs_[rank].steps.size(); ++e)
        add(rank, first_[rank] + static_cast<int>(e));
    std::vector<std::vector<Event>> order(programs_.size());
    std::size_t done = 0;
    for (; !ready.empty(); ++done) {
      const auto [step, carried_out, rank] = ready.top();
      ready.pop();
      if (carried_out || may_land(programs_[rank].steps[at(step)]))
        order[rank].push_back({step, !carried_out});
      for (const int later : after_[at(first_[rank] + 2 * step + (carried_out ? 1 : 0))])
        if (--waits_[at(later)] == 0) add(rank_of(later), later);
    }
    if (done == after_.size()) return order;
    return stuck();
  }

 private:
  int grant(Rank rank, std::int32_t step) const { return first_[at(rank)] + 2 * step; }
  int carry_out(Rank rank, std::int32_t step) const { return grant(rank, step) + 1; }

  std::size_t rank_of(int event) const {
    const auto next = std::upper_bound(first_.begin(), first_.end(), event);
    return static_cast<std::size_t>(next - first_.begin()) - 1;
  }

  void add(int before, int after) {
    after_[at(before)].push_back(after);
    ++waits_[at(after)];
  }

  void find_messages(const LoweredProgram& program) {
    for (std::size_t s = 0; s < program.steps.size(); ++s) {
      const LoweredStep& step = program.steps[s];
      const int event = carry_out(program.rank, static_cast<std::int32_t>(s));
      for (const LoweredOperand& source : step.sources) {
        if (source.kind != Operand::Kind::message) continue;
        Ends& ends = message(program.peers[at(source.stream)], program.rank, source.ordinal);
        ends.receiver = event;
        ends.received = &source;
      }
      for (const LoweredOperand& destination : step.destinations)
        if (destination.kind == Operand::Kind::message)
          message(program.rank, program.peers[at(destination.stream)], destination.ordinal).sender =
              event;
    }
  }

  Ends& message(Rank from, Rank to, std::int32_t ordinal) {
    std::vector<Ends>& messages = streams_[{from, to}];
    if (messages.size() <= at(ordinal)) messages.resize(at(ordinal) + 1);
    return messages[at(ordinal)];
  }

  // What steps wait for on their own rank, and until what they offered has been taken.
  void add_steps(const LoweredProgram& program) {
    for (std::size_t s = 0; s < program.steps.size(); ++s) {
      const auto step = static_cast<std::int32_t>(s);
      add(grant(program.rank, step), carry_out(program.rank, step));
      for (const LoweredDependency& dependency : program.steps[s].depends) {
        add(carry_out(program.rank, dependency.step), grant(program.rank, step));
        for (const LoweredOperand& sent : program.steps[at(dependency.step)].destinations) {
          if (sent.kind != Operand::Kind::message || sent.direct != DirectForm::pull) continue;
          const int taken =
              message(program.rank, program.peers[at(sent.stream)], sent.ordinal).receiver;
          add(taken, carry_out(program.rank, step));
          // When both are direct, the peer takes and stores in one step, and only the other form
          // of the message is granted nothing.
          if (!dependency.fused) add(taken, grant(program.rank, step));
        }
      }
    }
  }

  void add_stream(const std::vector<Ends>& messages) {
    int granted = -1;  // the last one that may be
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Ends& ends = messages[m];
      add(ends.sender, ends.receiver);
      if (m > 0) add(messages[m - 1].sender, ends.sender);
      if (m > 0) add(messages[m - 1].receiver, ends.receiver);
      if (m >= kQueueMessages) add(messages[m - kQueueMessages].receiver, ends.sender);
      if (ends.received->direct != DirectForm::push) continue;
      const bool always_ready = ends.received->at_arrival && ends.received->beside < 0;
      if (!always_ready) add(ends.receiver - 1, ends.sender);
      if (granted >= 0) add(granted, ends.receiver - 1);
      granted = ends.receiver - 1;
    }
  }

  Status stuck() const {
    std::size_t event = 0;
    while (waits_[event] == 0) ++event;
    const std::size_t rank = rank_of(static_cast<int>(event));
    return Status(StatusCode::unsupported,
                  fmt::format("no order of the steps serves all ways in which messages may travel: "
                              "rank {} step {} waits for what waits for it",
                              rank, (event - at(first_[rank])) / 2));
  }

  std::span<const LoweredProgram> programs_;
  std::size_t steps_ = 0;
  std::vector<int> first_;               // by rank: its first event
  std::vector<std::vector<int>> after_;  // by event: those that wait for it
  std::vector<int> waits_;               // by event: for how many it waits
  std::map<std::pair<Rank, Rank>, std::vector<Ends>> streams_;
};

}  // namespace

Result<std::vector<std::vector<Event>>> order_events(std::span<const LoweredProgram> programs) {
  return Order(programs).sort();
}

}  // namespace tutti::runtime::gpu

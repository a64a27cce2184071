// Runs a schedule on abstract memory in which a chunk holds a range of ranks, or nothing that is
// worth knowing. Rank after rank goes on until it waits for a message; queues have no end, because
// that nothing gets stuck with short ones is proved elsewhere.
#include "collectives/verifier_expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <vector>

#include "collectives/contract.hpp"

namespace tutti::collectives {
namespace {

// The canonical tree over the ranks begin .. end-1, or another expression (begin -1).
struct Group {
  Rank begin = -1;
  Rank end = -1;

  bool canonical() const { return begin >= 0; }
  int size() const { return end - begin; }
};

bool is_power_of_two(int value) { return (value & (value - 1)) == 0; }

Group add(const Group& left, const Group& right) {
  const bool adjacent = left.canonical() && right.canonical() && left.end == right.begin;
  if (!adjacent || !is_power_of_two(left.size()) || left.size() < right.size()) return {};
  return {left.begin, right.end};
}

// The canonical tree over the operands themselves: equal numbers of them are added as they come,
// what is left at the end from the right.
Group fold(const std::vector<Group>& operands) {
  std::vector<Group> stack;
  auto add_top = [&] {
    const Group right = stack.back();
    stack.pop_back();
    stack.back() = add(stack.back(), right);
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    stack.push_back(operands[i]);
    for (std::size_t pairs = i; pairs & 1; pairs >>= 1) add_top();
  }
  while (stack.size() > 1) add_top();
  return stack.front();
}

struct Queue {
  std::vector<Group> groups;
  std::size_t taken = 0;

  std::size_t waiting() const { return groups.size() - taken; }
};

class Run {
 public:
  explicit Run(const Schedule& schedule)
      : schedule_(schedule), at_(index(schedule.shape.ranks)), memory_(at_.size()) {
    for (Rank rank = 0; rank < schedule.shape.ranks; ++rank) ready_.push_back(rank);
  }

  ExpressionProof prove() {
    while (!ready_.empty() && moves_ <= kExpressionMovesMax) {
      const Rank rank = ready_.front();
      ready_.pop_front();
      while (moves_ <= kExpressionMovesMax && advance(rank)) {
      }
    }
    if (moves_ > kExpressionMovesMax)
      return {ReductionForm::any, fmt::format("moves more than {} chunks in all, which is too "
                                              "much to prove",
                                              kExpressionMovesMax)};
    for (Rank rank = 0; rank < schedule_.shape.ranks; ++rank)
      if (current(rank) != nullptr)
        return {ReductionForm::any,
                fmt::format("rank {} waits in the order of its steps for a message", rank)};
    return {form_, reason_};
  }

 private:
  // Where a rank is in its program.
  struct Place {
    std::size_t part = 0;
    int round = 0;
    std::size_t step = 0;
    int number = 0;       // of steps done
    Rank waits_for = -1;  // whose message is missing
  };

  static std::size_t index(int value) { return static_cast<std::size_t>(value); }
  Place& place(Rank rank) { return at_[index(rank)]; }

  const Step* current(Rank rank) {
    const std::vector<Repeat>& parts = schedule_.program(rank).parts;
    const Place& p = place(rank);
    return p.part < parts.size() ? &parts[p.part].body[p.step] : nullptr;
  }

  void next(Rank rank) {
    const std::vector<Repeat>& parts = schedule_.program(rank).parts;
    Place& p = place(rank);
    ++p.number;
    if (++p.step < parts[p.part].body.size()) return;
    p.step = 0;
    if (++p.round < parts[p.part].times) return;
    p.round = 0;
    ++p.part;
  }

  Queue& queue(Rank from, Rank to) {
    return queues_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
  }

  // Chunks of the rank's memory. What nobody has written is its input, or nothing.
  std::vector<Group>& memory(Rank rank, Buffer buffer) {
    std::vector<Group>& groups = memory_[index(rank)][static_cast<std::size_t>(buffer)];
    if (groups.empty())
      groups.assign(index(contract_chunks(schedule_.shape, buffer)),
                    buffer == Buffer::input ? Group{rank, rank + 1} : Group{});
    return groups;
  }

  bool advance(Rank rank) {
    const Step* step = current(rank);
    if (step == nullptr) return false;
    const int round = place(rank).round;
    for (const Operand& source : step->sources) {
      if (source.kind != Operand::Kind::message) continue;
      const Rank from = source.index.at(rank, round);
      if (queue(from, rank).waiting() >= index(source.count)) continue;
      place(rank).waits_for = from;
      return false;
    }
    execute(rank, *step, round);
    next(rank);
    return true;
  }

  void execute(Rank rank, const Step& step, int round) {
    // In the order of ranks: memory counts as its owner, a message as its sender.
    struct Source {
      Rank rank;
      const Operand* operand;
    };
    std::vector<Source> sources;
    for (const Operand& source : step.sources) {
      const bool message = source.kind == Operand::Kind::message;
      sources.push_back({message ? source.index.at(rank, round) : rank, &source});
    }
    std::stable_sort(sources.begin(), sources.end(),
                     [](const Source& x, const Source& y) { return x.rank < y.rank; });
    const int count = step.sources.front().count;
    std::vector<Group> results;
    for (int k = 0; k < count; ++k) {
      operands_.clear();
      for (const Source& source : sources)
        operands_.push_back(
            source.operand->kind == Operand::Kind::message
                ? take(source.rank, rank)
                : memory(rank,
                         source.operand->buffer)[index(source.operand->index.at(rank, round) + k)]);
      results.push_back(operands_.size() == 1 ? operands_.front() : fold(operands_));
    }
    moves_ += count * static_cast<std::int64_t>(sources.size() + step.destinations.size());
    if (step.kind == StepKind::reduce) judge(rank, step, results);
    for (const Operand& destination : step.destinations) store(rank, round, destination, results);
  }

  Group take(Rank from, Rank to) {
    Queue& q = queue(from, to);
    const Group group = q.groups[q.taken++];
    if (q.waiting() == 0) q = {};
    return group;
  }

  void store(Rank rank, int round, const Operand& destination, const std::vector<Group>& results) {
    const int to = destination.index.at(rank, round);
    if (destination.kind == Operand::Kind::chunks) {
      std::copy(results.begin(), results.end(), memory(rank, destination.buffer).begin() + to);
      return;
    }
    Queue& q = queue(rank, to);
    q.groups.insert(q.groups.end(), results.begin(), results.end());
    if (place(to).waits_for != rank) return;
    place(to).waits_for = -1;
    ready_.push_back(to);
  }

  void judge(Rank rank, const Step& step, const std::vector<Group>& results) {
    const auto complete = [&](const Group& result) {
      return result.begin == 0 && result.end == schedule_.shape.ranks;
    };
    auto lower_to = [&](ReductionForm form, std::string_view why) {
      if (form_ <= form) return;
      form_ = form;
      reason_ = fmt::format("rank {} step {} {}", rank, place(rank).number, why);
    };
    if (step.finish && !std::all_of(results.begin(), results.end(), complete))
      lower_to(ReductionForm::any, "reduces in another order than the tree over the ranks");
    if (!step.finish && step.sources.size() > 1)
      lower_to(ReductionForm::tree, "stores or sends a partial result");
  }

  const Schedule& schedule_;
  std::vector<Place> at_;
  std::vector<std::array<std::vector<Group>, 3>> memory_;
  std::unordered_map<std::uint64_t, Queue> queues_;  // by sender and receiver
  std::deque<Rank> ready_;                           // may have what they wait for
  std::vector<Group> operands_;
  std::int64_t moves_ = 0;
  ReductionForm form_ = ReductionForm::one_pass;
  std::string reason_;
};

}  // namespace

std::string_view to_string(ReductionForm form) {
  switch (form) {
    case ReductionForm::any:
      return "any";
    case ReductionForm::tree:
      return "tree";
    case ReductionForm::one_pass:
      return "one pass";
  }
  return "unknown";
}

ExpressionProof prove_expressions(const Schedule& schedule) { return Run(schedule).prove(); }

}  // namespace tutti::collectives

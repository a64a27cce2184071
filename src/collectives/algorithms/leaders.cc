// Leaders: of every group, such as the ranks that take turns on a core, one adds up what all have
// there, and everybody gets what the leaders have. Ranks that share a core then wait as seldom as
// can be: each gives its data to the leader and leaves the core, and when it gets it back the
// leaders are done. Elsewhere it is few messages between groups.
//
// Source: Bayatpour, Chakraborty, Subramoni, Lu, Panda, Scalable reduction collectives with data
// partitioning-based multi-leader design (2017), whose leaders share out the data as those of
// leaders_direct do, but within a node.
//
// Groups are of neighbours, and their first rank leads; or, of two, they lead in turn.
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

class Leaders {
 public:
  // `leader`: which rank of each group.
  Leaders(const Builder& b, const GroupSizes& groups, int leader = 0)
      : size_(groups.outermost()),
        count_(b.ranks() / size_),
        mine_(b.rank() / size_),
        leader_(leader) {}

  int count() const { return count_; }
  int mine() const { return mine_; }  // the number of this rank's group
  Rank of(int group) const { return group * size_ + leader_; }
  bool led_by(Rank rank) const { return rank == of(mine_); }

  // Of the leader: its own contribution and that of each other rank of the group, in their order.
  std::vector<Operand> contributions(const Operand& own) const {
    std::vector<Operand> sources;
    for (int i = 0; i < size_; ++i)
      sources.push_back(i == leader_ ? own : Builder::from(mine_ * size_ + i));
    return sources;
  }

  // The leaders' sums as `rank` has them, in the order of groups; its own lies there if it leads.
  std::vector<Operand> sums(Rank rank, const Operand& own) const {
    std::vector<Operand> sources;
    for (int group = 0; group < count_; ++group)
      sources.push_back(of(group) == rank ? own : Builder::from(of(group)));
    return sources;
  }

 private:
  int size_;  // of a group
  int count_;
  int mine_;
  int leader_;  // of a group
};

// The rank's own copy, and one for everybody else, by way of the queues: it is the same for all,
// and there it is written once.
std::vector<Operand> to_everybody(const Builder& b, const Operand& own) {
  std::vector<Operand> destinations = {own};
  for (int i = 1; i < b.ranks(); ++i)
    destinations.push_back(Builder::to_queue((b.rank() + i) % b.ranks()));
  return destinations;
}

// Each group's data to its leader, chunk by chunk, and from there the sum to the leader whose chunk
// it is; one's own chunk comes last, and its sum is not made here.
void share_out(Builder& b, const Leaders& leaders) {
  for (int i = 1; i <= leaders.count(); ++i) {
    const int group = (leaders.mine() + i) % leaders.count();
    if (!leaders.led_by(b.rank()))
      b.send(leaders.of(leaders.mine()), Builder::input(group));
    else if (group != leaders.mine())
      b.reduce(leaders.contributions(Builder::input(group)), {Builder::to(leaders.of(group))});
  }
}

void hear_results(Builder& b, const Leaders& leaders) {
  for (int group = 0; group < leaders.count(); ++group)
    if (leaders.of(group) != b.rank()) b.recv(leaders.of(group), Builder::output(group));
}

// Everybody adds up the sums of the leaders, in the order of groups, so that all get the same bits.
void tell_one_shot(Builder& b, const Leaders& leaders) {
  if (leaders.led_by(b.rank()))
    b.reduce(leaders.contributions(Builder::input(0)), to_everybody(b, Builder::output(0)));
  else
    b.send(leaders.of(leaders.mine()), Builder::input(0));
  b.finish(leaders.sums(b.rank(), Builder::output(0)), {Builder::output(0)});
}

// Every leader is responsible for a chunk: it gets the other groups' sums of it, and hands on the
// result. One wait more, and less to add.
void tell_direct(Builder& b, const Leaders& leaders) {
  share_out(b, leaders);
  if (leaders.led_by(b.rank())) {
    const int mine = leaders.mine();
    std::vector<Operand> sources = leaders.contributions(Builder::input(mine));
    for (int group = 0; group < leaders.count(); ++group)
      if (group != mine) sources.push_back(Builder::from(leaders.of(group)));
    b.finish(sources, to_everybody(b, Builder::output(mine)));
  }
  hear_results(b, leaders);
}

// The same in the order of ranks: the leader adds up what its own group has before it adds the sums
// of groups, of which all are of one size then.
void tell_in_order(Builder& b, const Leaders& leaders) {
  share_out(b, leaders);
  if (leaders.led_by(b.rank())) {
    const Operand mine = Builder::output(leaders.mine());
    b.reduce(leaders.contributions(Builder::input(leaders.mine())), {mine});
    b.finish(leaders.sums(b.rank(), mine), to_everybody(b, mine));
  }
  hear_results(b, leaders);
}

}  // namespace

void tell_leaders_one_shot_all_reduce(Builder& b, const GroupSizes& groups) {
  tell_one_shot(b, Leaders(b, groups));
}

// The root of each group of two leads: one in calls of even numbers, the other one in those of odd.
// Who has just ended a call begins the next one before it leaves the core, and has given its data
// when the other one comes, who can lead that call at once, end it, and begin the one after.
void tell_leaders_in_turn_all_reduce(Builder& b, const GroupSizes& groups) {
  tell_one_shot(b, Leaders(b, groups, b.root()));
}

void tell_leaders_direct_all_reduce(Builder& b, const GroupSizes& groups) {
  tell_direct(b, Leaders(b, groups));
}

void tell_leaders_direct_in_turn_all_reduce(Builder& b, const GroupSizes& groups) {
  tell_direct(b, Leaders(b, groups, b.root()));
}

void tell_leaders_in_order_all_reduce(Builder& b, const GroupSizes& groups) {
  tell_in_order(b, Leaders(b, groups));
}

void tell_leaders_in_order_in_turn_all_reduce(Builder& b, const GroupSizes& groups) {
  tell_in_order(b, Leaders(b, groups, b.root()));
}

}  // namespace tutti::collectives::algorithms

// Agreements in seeded networks without transports: any order of deliveries between different
// ranks, deaths at any moment, news of a death that comes late. And messages that make no sense.
#include "runtime/membership/agreement.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>

namespace tutti::runtime {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::uint64_t flags_of(Rank rank, int round) {
  return ~(std::uint64_t{1} << ((rank * 7 + round) % 64));
}
std::string blob_of(Rank rank, int round) {
  return std::string(at(rank % 5), 'x') + std::to_string(rank * 100 + round);
}

class World {
 public:
  World(int size, unsigned seed, int deaths, int rounds)
      : random_(seed), size_(size), rounds_(rounds), dead_(at(size)), done_(at(size)) {
    for (Rank r = 0; r < size; ++r) {
      ranks_.push_back(std::make_unique<Agreement>(r, size));
      decisions_.emplace_back();
      ranks_.back()->begin(flags_of(r, 0), blob_of(r, 0));
    }
    for (int i = 0; i < deaths; ++i)
      deaths_.emplace(draw(1 + at(size) * 8 * at(rounds)), static_cast<Rank>(draw(at(size))));
  }

  // False: it hangs.
  bool run() {
    for (std::size_t turn = 0; turn < 200'000; ++turn) {
      for (auto [first, last] = deaths_.equal_range(turn); first != last; ++first)
        kill(first->second);
      if (all_done()) return true;
      bool moved = false;
      for (Rank r = 0; r < size_; ++r) moved |= move(r);
      if (!deliver() && !moved) return all_done();
    }
    return false;
  }

  const std::vector<std::vector<Decision>>& decisions() const { return decisions_; }
  bool dead(Rank r) const { return dead_[at(r)]; }
  int deaths() const { return deaths_seen_; }

 private:
  std::size_t draw(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }

  bool all_done() const {
    for (Rank r = 0; r < size_; ++r)
      if (!dead(r) && !done_[at(r)]) return false;
    return true;
  }

  bool move(Rank r) {
    if (dead(r)) return false;
    bool moved = false;
    Agreement& mine = *ranks_[at(r)];
    if (auto decision = mine.take_decision()) {
      moved = true;
      decisions_[at(r)].push_back(*decision);
      const int round = static_cast<int>(decisions_[at(r)].size());
      if (round == rounds_)
        done_[at(r)] = true;
      else
        mine.begin(flags_of(r, round), blob_of(r, round));
    }
    for (auto& message : mine.take_outgoing()) {
      wires_[{r, message.to}].push_back(message.bytes);
      moved = true;
    }
    return moved;
  }

  void kill(Rank r) {
    if (dead(r)) return;
    move(r);
    dead_[at(r)] = true;
    ++deaths_seen_;
    // Of what was on its way some part arrives, from the first on.
    for (auto& [ends, wire] : wires_)
      if (ends.first == r && !wire.empty()) wire.resize(draw(wire.size() + 1));
    for (Rank other = 0; other < size_; ++other)
      if (other != r) news_.emplace_back(r, other);
  }

  bool deliver() {
    std::vector<std::pair<Rank, Rank>> ready;
    for (auto& [ends, wire] : wires_)
      if (!wire.empty() && !dead(ends.second) && !told_[{ends.second, ends.first}])
        ready.push_back(ends);
    const std::size_t choices = ready.size() + news_.size();
    if (choices == 0) return false;
    const std::size_t choice = draw(choices);
    if (choice < ready.size()) {
      auto& wire = wires_[ready[choice]];
      const std::string message = std::move(wire.front());
      wire.pop_front();
      ranks_[at(ready[choice].second)]->received(ready[choice].first, message);
    } else {
      const auto [who, whom] = news_[choice - ready.size()];
      news_.erase(news_.begin() + static_cast<std::ptrdiff_t>(choice - ready.size()));
      told_[{whom, who}] = true;
      if (!dead(whom)) ranks_[at(whom)]->lost(who);
    }
    return true;
  }

  std::mt19937 random_;
  int size_;
  int rounds_;
  std::vector<std::unique_ptr<Agreement>> ranks_;
  std::vector<std::vector<Decision>> decisions_;
  std::vector<bool> dead_;
  std::vector<bool> done_;
  std::multimap<std::size_t, Rank> deaths_;
  int deaths_seen_ = 0;
  std::map<std::pair<Rank, Rank>, std::deque<std::string>> wires_;  // from, to
  std::map<std::pair<Rank, Rank>, bool> told_;                      // whom, of whose death
  std::vector<std::pair<Rank, Rank>> news_;                         // who died, whom to tell
};

// What holds of one round's decision, whoever came to it.
void check(const World& world, int size, int round) {
  const Decision* first = nullptr;
  for (Rank r = 0; r < size; ++r) {
    const auto& decisions = world.decisions()[at(r)];
    if (decisions.size() <= at(round)) continue;
    if (first == nullptr) first = &decisions[at(round)];
    ASSERT_EQ(decisions[at(round)], *first) << "rank " << r << " round " << round;
  }
  if (first == nullptr) return;
  std::uint64_t flags = ~std::uint64_t{0};
  for (Rank r = 0; r < size; ++r) {
    if (first->lost[at(r)]) {
      EXPECT_TRUE(world.dead(r)) << "rank " << r << " lives";
      EXPECT_EQ(first->blobs[at(r)], "");
      continue;
    }
    flags &= flags_of(r, round);
    EXPECT_EQ(first->blobs[at(r)], blob_of(r, round));
  }
  EXPECT_EQ(first->flags, flags);
}

TEST(Agreement, AllHaveTheSameInAnyOrderOfMessages) {
  for (int size = 1; size <= 9; ++size) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      World world(size, seed, 0, 3);
      ASSERT_TRUE(world.run()) << size << " ranks, seed " << seed;
      for (Rank r = 0; r < size; ++r) EXPECT_EQ(world.decisions()[at(r)].size(), 3u);
      for (int round = 0; round < 3; ++round) check(world, size, round);
    }
  }
}

TEST(Agreement, WhoeverDiesWheneverTheOthersHaveTheSame) {
  int deaths = 0;
  for (unsigned seed = 1; seed <= 4000; ++seed) {
    const int size = 2 + static_cast<int>(seed % 8);
    World world(size, seed, 1 + static_cast<int>(seed % 5), 3);
    ASSERT_TRUE(world.run()) << size << " ranks, seed " << seed;
    for (int round = 0; round < 3; ++round) check(world, size, round);
    if (HasFailure()) FAIL() << size << " ranks, seed " << seed;
    deaths += world.deaths();
  }
  EXPECT_GT(deaths, 4000);
}

TEST(Agreement, ManyRanks) {
  World world(257, 5, 40, 1);
  ASSERT_TRUE(world.run());
  check(world, 257, 0);
}

TEST(Agreement, NonsenseLosesItsSenderOnly) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Agreement mine(0, 3);
    mine.begin(1, "mine");
    std::string junk(random() % 40, '\0');
    for (char& byte : junk) byte = static_cast<char>(random());
    if (!junk.empty()) junk[0] = static_cast<char>(random() % 8);
    if (junk.size() > 4) junk.replace(1, 4, std::string("\1\0\0\0", 4));
    mine.received(1, junk);
    for (const auto& message : mine.take_outgoing()) EXPECT_NE(message.to, 0);
    EXPECT_FALSE(mine.lost_ranks()[2]);
  }
}

TEST(Agreement, SaysWhomItWaitsFor) {
  Agreement zero(0, 3);
  Agreement two(2, 3);
  zero.begin(0, "");
  two.begin(0, "");
  EXPECT_EQ(zero.awaited(), (std::vector<Rank>{1, 2}));
  EXPECT_EQ(two.awaited(), std::vector<Rank>{0});
  two.lost(0);
  EXPECT_EQ(two.awaited(), std::vector<Rank>{1});
  two.lost(1);
  ASSERT_TRUE(two.take_decision());
  EXPECT_TRUE(two.awaited().empty());
}

}  // namespace
}  // namespace tutti::runtime

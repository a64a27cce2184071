// rounds.hpp: ranks of one thread that make the same call again and again, the general way or that
// of a round (one_round.hpp, direct_round.hpp), and what they must hold afterwards.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/executor.hpp"
#include "transport/memory/transport.hpp"
#include "unit/runtime/moving_transport.hpp"
#include "unit/runtime/private_transport.hpp"
#include "unit/runtime/world.hpp"

namespace tutti::runtime::testing {

struct Calls {
  Collective collective = Collective::all_reduce;
  std::string_view algorithm;
  bool direct = false;
  bool pulls = false;  // loads copies that it could store
  std::size_t frame_bytes = 4096;
  Attached* attached = nullptr;  // memory that is not shared is copied by the system
  std::size_t streaming_bytes = ExecutorOptions().streaming_bytes;
  Moved* moved = nullptr;       // the transport moves long messages itself
  std::string_view plain = {};  // another algorithm, for memory that is not shared; staged
  std::vector<std::string_view> others = {};  // that may be quicker than either
  bool others_queue = false;                  // go through queues where the usual one does not
  bool plain_others_address = false;          // though the plan for such memory does not
  int group = 1;                              // ranks of one, for algorithms that go by them
  Rank never_shares = -1;       // its buffers no peer can address, whatever the others'
  bool (*refuses)() = nullptr;  // whether the next message finds no room
};

class Rounds {
 public:
  // `shares`: whether the next buffer that a rank shows to a peer may be addressed by it; null:
  // all.
  // `agree`: the ranks find out whether to load or store, whatever `calls` says.
  Rounds(const Calls& calls, int ranks, std::size_t count, bool in_place,
         PrivateTransport::Shares shares = nullptr, bool agree = false)
      : shape_{calls.collective, ranks, 0, count},
        direct_(calls.direct),
        in_place_(in_place),
        buffers_(idx(ranks)) {
    using collectives::Copies;
    transport::TransportOptions options;
    options.size = ranks;
    options.channel_count = 1;
    options.frame_bytes_max = calls.frame_bytes;
    options.queue_bytes = 2 * calls.frame_bytes;
    const auto world = transport::MemoryWorld::make(options);
    const auto algorithm = collectives::find_algorithm(calls.collective, calls.algorithm);
    const auto schedule = *collectives::build(**algorithm, ranks, 0, calls.group);
    auto programs = collectives::lower_all(schedule);
    auto pulled = collectives::lower_all(schedule, Copies::pulled);
    const auto share = [](collectives::LoweredProgram program) {
      return std::make_shared<collectives::LoweredProgram>(std::move(program));
    };
    for (Rank r = 0; r < ranks; ++r) {
      auto transport = transport::make_memory_transport(world, r);
      if (shares)
        transport = std::make_unique<PrivateTransport>(
            std::move(transport), r == calls.never_shares ? [] { return false; } : shares,
            calls.attached, calls.refuses);
      private_.push_back(shares ? static_cast<PrivateTransport*>(transport.get()) : nullptr);
      if (calls.moved != nullptr)
        transport = std::make_unique<MovingTransport>(std::move(transport), *calls.moved);
      transports_.push_back(std::move(transport));
      executors_.push_back(std::make_unique<Executor>(
          *transports_.back(),
          ExecutorOptions{.streaming_bytes = calls.streaming_bytes,
                          .stores = {},
                          .pulls = agree ? std::nullopt : std::optional(calls.pulls)}));
      plans_.push_back({std::string(calls.algorithm),
                        {1, calls.frame_bytes, direct_},
                        share(std::move(programs[idx(r)])),
                        42});
      plans_.back().all_meet = (*algorithm)->all_meet();
      if ((*algorithm)->combines()) plans_.back().combining_group = calls.group;
      if ((*algorithm)->in_turn()) {
        const auto odd = *collectives::build(**algorithm, ranks, 1, calls.group);
        plans_.back().odd = share(collectives::lower(odd, r));
      }
      if (calls.attached == nullptr || (*algorithm)->all_copy())
        plans_.back().pulled = share(std::move(pulled[idx(r)]));
      if (calls.plain.empty()) continue;
      const auto plain = plan_of(calls, calls.plain, r, false);
      for (const std::string_view other : calls.others) {
        plans_.back().others.push_back(plan_of(calls, other, r, direct_ && !calls.others_queue));
        plain->others.push_back(plan_of(calls, other, r, calls.plain_others_address));
      }
      plans_.back().plain = plain;
    }
  }

  int ranks() const { return shape_.ranks; }
  // Frames that this rank wrote once for several peers. Requires  memory that is not shared.
  std::size_t written_once(Rank rank) const { return private_[idx(rank)]->for_all(); }
  // Those of them that took the place of a peer's.
  std::size_t written_in_place(Rank rank) const { return private_[idx(rank)]->in_place(); }
  // How often it woke sleepers, and what its own sleep is to end by.
  std::size_t wakes(Rank rank) const { return private_[idx(rank)]->wakes(); }
  const std::atomic<std::uint64_t>* awaited_word(Rank rank) const {
    return private_[idx(rank)]->awaited();
  }
  PrivateTransport::Imports& imports(Rank rank) { return private_[idx(rank)]->imports(); }
  Executor& executor(Rank rank) { return *executors_[idx(rank)]; }
  bool find(Rank rank, int looks) {
    std::uint64_t missed_at = 0;
    return executor(rank).find_again(looks, missed_at);
  }
  const collectives::Plan& plan(Rank rank) const { return plans_[idx(rank)]; }
  // What `by` was told by `from`.
  std::uint64_t heard(Rank by, Rank from, Signal which) {
    return (*transports_[idx(by)]->endpoint(from, 0))->signalled(which);
  }
  void count_a_call() { ++sequence_; }
  // It is made by the usual plan only, whatever the others do.
  void forget_plain_plan(Rank rank) { plans_[idx(rank)].plain = nullptr; }

  // In new memory.
  Call next(Rank rank) {
    buffers_[idx(rank)] = make_buffers(shape_, rank, in_place_);
    return Call::signed_as({sequence_, shape_.collective, DataType::int64, ReduceOp::sum, direct_,
                            0, shape_.count, 42},
                           buffers_[idx(rank)].input, buffers_[idx(rank)].output);
  }

  void all_the_general_way() {
    ++sequence_;
    for (Rank r = 0; r < shape_.ranks; ++r)
      ASSERT_TRUE(executors_[idx(r)]->start(next(r), plans_[idx(r)]).ok());
    finish();
  }

  // From this rank on, one after the other; returns how many found all there at once.
  int again(Rank first) {
    ++sequence_;
    int found = 0;
    for (Rank i = 0; i < shape_.ranks; ++i) {
      const std::size_t r = idx((first + i) % shape_.ranks);
      EXPECT_TRUE(executors_[r]->post_again(next(static_cast<Rank>(r)), plans_[r]));
      const bool all_there = find(static_cast<Rank>(r), 0);
      EXPECT_EQ(executors_[r]->end_again(all_there), all_there);
      found += all_there ? 1 : 0;
    }
    finish();
    return found;
  }

  // All post, and then look in turns, each as often as it says; returns how many found all there.
  // `general`: this rank makes the call the general way, whatever it was before.
  int together(const std::function<int(Rank)>& looks, Rank general = -1) {
    ++sequence_;
    std::vector<int> left(idx(shape_.ranks));
    std::vector<bool> posted(idx(shape_.ranks));
    for (Rank r = 0; r < shape_.ranks; ++r) {
      left[idx(r)] = looks(r);
      Call call = next(r);
      posted[idx(r)] = r != general && executors_[idx(r)]->post_again(call, plans_[idx(r)]);
      if (posted[idx(r)]) continue;
      EXPECT_TRUE(executors_[idx(r)]->start(call, plans_[idx(r)]).ok());
    }
    int found = 0;
    for (bool any = true; any;) {
      any = false;
      for (std::size_t r = 0; r < executors_.size(); ++r) {
        if (!posted[r]) {
          executors_[r]->advance();
          continue;
        }
        const bool all_there = left[r]-- > 0 && find(static_cast<Rank>(r), 0);
        if (!all_there && left[r] >= 0) {
          any = true;
          continue;
        }
        posted[r] = false;
        EXPECT_EQ(executors_[r]->end_again(all_there), all_there);
        found += all_there ? 1 : 0;
      }
    }
    finish();
    return found;
  }

  // In which ranks go on in turns until all have ended it.
  void one_that_fails() {
    ++sequence_;
    for (Rank r = 0; r < shape_.ranks; ++r) {
      Executor& executor = *executors_[idx(r)];
      const Call call = next(r);
      if (executor.post_again(call, plans_[idx(r)]))
        executor.end_again(find(r, 1));
      else
        EXPECT_TRUE(executor.start(call, plans_[idx(r)]).ok() || !executor.status().ok());
    }
    for (int turn = 0; turn < 50; ++turn)
      for (std::size_t r = 0; r < executors_.size(); ++r) {
        EXPECT_TRUE(transports_[r]->poll().ok());
        if (!executors_[r]->done()) executors_[r]->advance();
      }
  }

  void finish() {
    for (int turn = 0; turn < 50; ++turn)
      for (std::size_t r = 0; r < executors_.size(); ++r) {
        ASSERT_TRUE(transports_[r]->poll().ok());
        if (!executors_[r]->done()) executors_[r]->advance();
        ASSERT_TRUE(executors_[r]->status().ok()) << executors_[r]->status().to_string();
      }
    for (Rank r = 0; r < shape_.ranks; ++r) {
      ASSERT_TRUE(executors_[idx(r)]->done()) << "rank " << r;
      check(r);
    }
  }

  // A rank that has not made the latest so many calls makes them.
  void catch_up(Rank rank, int calls) {
    const std::uint32_t latest = sequence_;
    for (sequence_ -= static_cast<std::uint32_t>(calls); sequence_ < latest;) {
      ++sequence_;
      ASSERT_TRUE(executors_[idx(rank)]->start(next(rank), plans_[idx(rank)]).ok());
      executors_[0]->advance();
      executors_[idx(rank)]->advance();
      ASSERT_TRUE(executors_[idx(rank)]->done()) << "call " << sequence_;
      check(rank);
    }
  }

 private:
  std::shared_ptr<collectives::Plan> plan_of(const Calls& calls, std::string_view algorithm,
                                             Rank rank, bool direct) const {
    const auto found = collectives::find_algorithm(calls.collective, algorithm);
    const auto schedule = *collectives::build(**found, shape_.ranks, 0, calls.group);
    auto plan = std::make_shared<collectives::Plan>();
    plan->algorithm = algorithm;
    plan->settings = {1, calls.frame_bytes, direct};
    plan->hash = 43 + std::hash<std::string_view>()(algorithm) + (direct ? 1 : 0);
    plan->program =
        std::make_shared<collectives::LoweredProgram>(collectives::lower(schedule, rank));
    plan->all_meet = (*found)->all_meet();
    return plan;
  }

  void check(Rank rank) const {
    const auto right = [&](std::size_t i) { return expected(shape_, rank, i, kUntouched); };
    const std::size_t count = output_elements(shape_);
    if (in_place_ && count > 0 && right(0) == kUntouched) return;  // there is the rank's own input
    const auto* output = reinterpret_cast<const std::int64_t*>(buffers_[idx(rank)].output);
    ASSERT_TRUE(all_are(output, count, right)) << "rank " << rank;
  }

  Shape shape_;
  bool direct_;
  bool in_place_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<PrivateTransport*> private_;  // by rank; null where all memory is shared
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<collectives::Plan> plans_;
  std::vector<Buffers> buffers_;
  std::uint32_t sequence_ = 0;
};

// Requires  the next call may be made in a round.
inline void expect_only_like_the_latest(Rounds& rounds) {
  Executor& executor = rounds.executor(0);
  rounds.count_a_call();
  Call call = rounds.next(0);
  call.signature.count = 4;
  EXPECT_FALSE(executor.post_again(call, rounds.plan(0)));
  call = rounds.next(0);
  call.signature.type = DataType::uint64;
  EXPECT_FALSE(executor.post_again(call, rounds.plan(0)));
  collectives::Plan cut = rounds.plan(0);
  cut.settings.slice_bytes = 1024;
  EXPECT_FALSE(executor.post_again(rounds.next(0), cut));
  EXPECT_TRUE(executor.post_again(rounds.next(0), rounds.plan(0)));
}

// Requires  two ranks, and the next call may be made in a round.
inline void expect_that_another_call_is_a_mismatch(Rounds& rounds) {
  rounds.count_a_call();
  ASSERT_TRUE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
  Call other = rounds.next(1);
  other.signature.op = ReduceOp::max;
  other.sign();
  ASSERT_TRUE(rounds.executor(1).post_again(other, rounds.plan(1)));
  for (const Rank rank : {0, 1}) {
    EXPECT_FALSE(rounds.find(rank, 3));
    EXPECT_FALSE(rounds.executor(rank).end_again(false));
    for (int turn = 0; turn < 5 && !rounds.executor(rank).done(); ++turn)
      rounds.executor(rank).advance();
    EXPECT_EQ(rounds.executor(rank).status().code(), StatusCode::mismatch);
  }
}

}  // namespace tutti::runtime::testing

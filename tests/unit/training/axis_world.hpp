// axis_world.hpp: an axis whose ranks are threads of the test, made only of a barrier and shared
// pointers: what modules do on several ranks is tested without the library that will carry it.
//
// Sums are the tree over ranks that the library's deterministic mode promises.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "training/modules/axis.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training::test {

// The ranks of one axis. Lifetime  outlives the threads that use its axes.
class AxisWorld {
 public:
  explicit AxisWorld(int size);

  int size() const { return size_; }
  // Threading  one thread for each rank.
  Axis& axis(int rank) { return *axes_[static_cast<std::size_t>(rank)]; }

 private:
  class ThreadAxis;

  // What a rank shows the others between the two barriers of each call.
  struct Shown {
    Tensor tensor;
    std::span<const std::int64_t> counts;
  };

  int size_;
  std::barrier<> barrier_;
  std::vector<Shown> shown_;
  std::vector<std::unique_ptr<Axis>> axes_;
};

class AxisWorld::ThreadAxis final : public Axis {
 public:
  ThreadAxis(AxisWorld& world, int rank) : world_(world), rank_(rank) {}

  int size() const override { return world_.size_; }
  int rank() const override { return rank_; }

  void all_reduce_sum(const Tensor& data) override {
    all_reduce(data, [](auto a, auto b) { return a + b; });
  }
  void all_reduce_max(const Tensor& data) override {
    all_reduce(data, [](auto a, auto b) { return std::max(a, b); });
  }

  void all_gather(const Tensor& part, const Tensor& whole) override {
    TRAINING_CHECK(whole.bytes() == part.bytes() * shown().size(), "the whole is all parts");
    show({part, {}});
    for (std::size_t p = 0; p < shown().size(); ++p)
      std::memcpy(whole.data() + p * part.bytes(), shown()[p].tensor.data(), part.bytes());
    finish();
  }

  void reduce_scatter(const Tensor& whole, const Tensor& part) override {
    TRAINING_CHECK(whole.bytes() == part.bytes() * shown().size(), "the whole is all parts");
    show({whole, {}});
    const auto add = [](auto a, auto b) { return a + b; };
    visit(whole.type(), [&](auto zero) {
      using T = decltype(zero);
      const std::vector<T> sums = fold<T>(rank_ * part.count(), part.count(), add);
      finish();  // the part may lie in the whole
      std::copy(sums.begin(), sums.end(), part.as<T>());
    });
  }

  void all_to_all_rows(const Tensor& sent, std::span<const std::int64_t> sent_rows,
                       const Tensor& received,
                       std::span<const std::int64_t> received_rows) override {
    const auto row = static_cast<std::size_t>(received.columns()) * size_of(received.type());
    show({sent, sent_rows});
    std::byte* to = received.data();
    for (std::size_t p = 0; p < shown().size(); ++p) {
      const auto me = static_cast<std::size_t>(rank_);
      std::int64_t skipped = 0;
      for (std::size_t q = 0; q < me; ++q) skipped += shown()[p].counts[q];
      TRAINING_CHECK(shown()[p].counts[me] == received_rows[p], "both sides know how many rows");
      const std::size_t bytes = static_cast<std::size_t>(received_rows[p]) * row;
      if (bytes > 0)
        std::memcpy(to, shown()[p].tensor.data() + static_cast<std::size_t>(skipped) * row, bytes);
      to += bytes;
    }
    finish();
  }

  void exchange_counts(std::span<const std::int64_t> sent,
                       std::span<std::int64_t> received) override {
    show({Tensor(), sent});
    for (std::size_t p = 0; p < shown().size(); ++p)
      received[p] = shown()[p].counts[static_cast<std::size_t>(rank_)];
    finish();
  }

  Status status() const override { return {}; }

 private:
  std::vector<Shown>& shown() { return world_.shown_; }

  void show(const Shown& mine) {
    shown()[static_cast<std::size_t>(rank_)] = mine;
    world_.barrier_.arrive_and_wait();
  }
  // After it, others no longer look at what this rank showed.
  void finish() {
    world_.barrier_.arrive_and_wait();
    shown()[static_cast<std::size_t>(rank_)] = {};
  }

  template <typename Combine>
  void all_reduce(const Tensor& data, const Combine& combine) {
    show({data, {}});
    visit(data.type(), [&](auto zero) {
      using T = decltype(zero);
      const std::vector<T> results = fold<T>(0, data.count(), combine);
      finish();
      std::copy(results.begin(), results.end(), data.as<T>());
    });
  }

  template <typename T, typename Combine>
  std::vector<T> fold(std::int64_t begin, std::int64_t count, const Combine& combine) {
    std::vector<T> results;
    for (std::int64_t i = begin; i < begin + count; ++i)
      results.push_back(store<T>(fold_ranks<T>(0, shown().size(), i, combine)));
    return results;
  }

  // Ranks [from, from + count): the largest power of two of them that is not all, then the rest.
  template <typename T, typename Combine>
  Wide<T> fold_ranks(std::size_t from, std::size_t count, std::int64_t i, const Combine& combine) {
    if (count == 1) return load(shown()[from].tensor.as<T>()[i]);
    std::size_t left = 1;
    while (2 * left < count) left *= 2;
    return combine(fold_ranks<T>(from, left, i, combine),
                   fold_ranks<T>(from + left, count - left, i, combine));
  }

  AxisWorld& world_;
  int rank_;
};

inline AxisWorld::AxisWorld(int size)
    : size_(size), barrier_(size), shown_(static_cast<std::size_t>(size)) {
  for (int rank = 0; rank < size; ++rank)
    axes_.push_back(std::make_unique<ThreadAxis>(*this, rank));
}

// Calls `body(rank)` for each of `size` ranks, each in a thread of its own. A body does not return
// before its last call on an axis, or the others wait for ever: EXPECT there, not ASSERT.
inline void run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tutti::training::test

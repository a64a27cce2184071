// conformance.hpp: what every transport must do, told once. The suite in conformance_test.cc runs
// over a table of TransportCase; a new transport adds a line to that table.
//
// Does not know any transport: a case says how to make a world of n connected ranks in this
// process. The tests drive it from one thread that takes the ranks in turn, and, where the case
// allows it, from one thread per rank.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/options.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::conformance {

// All ranks of a world, in this process.
struct World {
  std::vector<std::unique_ptr<Transport>> transports;  // by rank
  std::function<void()> advance;  // moves simulated time by a little; empty where time is real
};

struct TransportCase {
  std::string name;
  // Requires of the options: all but `rank`, which the maker sets.
  std::function<World(const TransportOptions&)> make;
  bool threads = true;  // each rank may be driven by a thread of its own
};

inline std::ostream& operator<<(std::ostream& stream, const TransportCase& transport_case) {
  return stream << transport_case.name;
}

// An all-gather among `size` threads, for transports that exchange addresses when they are made.
class ThreadExchange {
 public:
  explicit ThreadExchange(int size) : size_(static_cast<std::size_t>(size)), blobs_(size_) {}

  ExchangeFunction of(Rank rank) {
    return [this, rank](const std::string& mine) -> Result<std::vector<std::string>> {
      std::unique_lock lock(mutex_);
      blobs_[static_cast<std::size_t>(rank)] = mine;
      arrived_ += 1;
      changed_.notify_all();
      const bool all =
          changed_.wait_for(lock, std::chrono::seconds(20), [this] { return arrived_ == size_; });
      if (!all) return Status(StatusCode::timeout, "not all threads came to the exchange");
      return blobs_;
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t size_;
  std::size_t arrived_ = 0;
  std::vector<std::string> blobs_;
};

// Runs `body(rank)` in one thread for each rank.
inline void in_threads(int size, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

// A world of transports that meet through an exchange when they are made.
inline World make_by_exchange(const TransportOptions& options,
                              const std::function<Result<std::unique_ptr<Transport>>(
                                  const TransportOptions&, const ExchangeFunction&)>& make) {
  World world;
  world.transports.resize(static_cast<std::size_t>(options.size));
  ThreadExchange exchange(options.size);
  in_threads(options.size, [&](Rank rank) {
    TransportOptions mine = options;
    mine.rank = rank;
    Result<std::unique_ptr<Transport>> made = make(mine, exchange.of(rank));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) world.transports[static_cast<std::size_t>(rank)] = std::move(made).value();
  });
  return world;
}

// The byte at `index` of frame number `number` of a stream.
inline std::byte expected_byte(std::uint64_t stream, std::uint64_t number, std::size_t index) {
  std::uint64_t mixed = (stream * 0x9e3779b97f4a7c15u) ^ (number * 0xbf58476d1ce4e5b9u) ^ index;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed * 0x94d049bb133111ebu >> 56);
}

inline void fill(std::span<std::byte> room, std::uint64_t stream, std::uint64_t number) {
  for (std::size_t i = 0; i < room.size(); ++i) room[i] = expected_byte(stream, number, i);
}

inline bool holds(std::span<const std::byte> payload, std::uint64_t stream, std::uint64_t number) {
  for (std::size_t i = 0; i < payload.size(); ++i)
    if (payload[i] != expected_byte(stream, number, i)) return false;
  return true;
}

// The head of frame `number`, as long as `place`, copied there; false while it has not come.
inline bool copies_head(Endpoint& endpoint, std::uint64_t number, std::span<std::byte> place) {
  Frame frame;
  if (place.empty()) return true;
  if (!endpoint.peek_head(place.size(), frame)) return false;
  EXPECT_TRUE(frame.tag == number && frame.payload.size() >= place.size()) << number;
  std::copy_n(frame.payload.begin(), place.size(), place.begin());
  return true;
}

// The fixture: a world, and the ways in which tests drive it.
class TransportConformance : public testing::TestWithParam<TransportCase> {
 protected:
  void make(int size, int channels = 1, std::size_t frame_bytes_max = 4096,
            std::size_t queue_bytes = 16384) {
    TransportOptions options;
    options.size = size;
    options.channel_count = channels;
    options.frame_bytes_max = frame_bytes_max;
    options.queue_bytes = queue_bytes;
    options.context = 7;
    options.job_secret = "conformance";
    world_ = GetParam().make(options);
    for (const auto& transport : world_.transports) ASSERT_NE(transport, nullptr);
  }

  Transport& transport(Rank rank) { return *world_.transports[static_cast<std::size_t>(rank)]; }

  Endpoint& endpoint(Rank from, Rank to, int channel = 0) {
    Result<Endpoint*> made = transport(from).endpoint(to, channel);
    if (!made.ok()) throw std::runtime_error(made.status().to_string());
    return *made.value();
  }

  // Polls every rank that still exists once.
  void poll_all() {
    for (const auto& transport : world_.transports) {
      if (!transport) continue;
      const Result<bool> polled = transport->poll();
      EXPECT_TRUE(polled.ok()) << polled.status().to_string();
    }
    if (world_.advance) world_.advance();
  }

  // Polls until `done()`; false when that takes absurdly long. No test asserts on time.
  template <typename Done>
  bool eventually(Done done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      poll_all();
      if (std::chrono::steady_clock::now() > limit) return false;
    }
    return true;
  }

  // True when the frame could be queued at once.
  static bool try_send(Endpoint& to, std::uint64_t stream, std::uint64_t number,
                       std::size_t bytes) {
    const std::span<std::byte> room = to.reserve(bytes);
    if (room.data() == nullptr) return false;
    EXPECT_EQ(room.size(), bytes);
    fill(room, stream, number);
    to.commit(static_cast<std::uint32_t>(number), bytes);
    return true;
  }

  bool send(Endpoint& to, std::uint64_t stream, std::uint64_t number, std::size_t bytes) {
    return eventually([&] { return try_send(to, stream, number, bytes); });
  }

  // Waits for the next frame, checks it against what send() sent, and releases it.
  void expect_frame(Endpoint& from, std::uint64_t stream, std::uint64_t number, std::size_t bytes) {
    Frame frame;
    ASSERT_TRUE(eventually([&] { return from.peek(frame); })) << "frame " << number;
    ASSERT_EQ(frame.tag, static_cast<std::uint32_t>(number));
    ASSERT_EQ(frame.payload.size(), bytes);
    ASSERT_TRUE(holds(frame.payload, stream, number)) << "frame " << number;
    from.release();
  }

  World world_;
};

}  // namespace tutti::transport::conformance

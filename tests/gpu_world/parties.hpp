// parties.hpp: ranks that talk about memory and make no calls, for tests of that talk.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu_world/host_device.hpp"
#include "runtime/gpu/host/regions.hpp"

namespace tutti::runtime::gpu {

inline bool well() { return false; }

template <class Holds>
bool comes_true(Holds holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Descriptors of this process.
inline std::size_t open_files() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// A rank without calls.
struct Party {
  explicit Party(Rank number) : rank(number), device({number + 1, 64, 32, true}) {
    memory = std::make_unique<RankMemory>(
        *RankMemory::make(device, {3, 2, 2, 64, 64}, number, kSharedRegionCount));
    regions = *Regions::make([this](const std::string& text) {
      const std::lock_guard lock(mutex);
      told = text;
    });
    piece = *device.allocate(4096);
  }
  ~Party() {
    regions.reset();
    device.deallocate(piece);
  }
  bool has_opened() const { return regions->is_open(piece, 4096); }
  // The last thing that people were told.
  std::string wait_for_news() {
    std::string text;
    EXPECT_TRUE(comes_true([&] {
      const std::lock_guard lock(mutex);
      text = told;
      return !text.empty();
    }));
    return text;
  }

  Rank rank;
  HostDevice device;
  std::unique_ptr<RankMemory> memory;
  std::mutex mutex;
  std::string told;
  std::unique_ptr<Regions> regions;
  std::byte* piece = nullptr;
};

using Parties = std::vector<std::unique_ptr<Party>>;

inline Parties parties_of(int ranks) {
  Parties parties;
  for (Rank rank = 0; rank < ranks; ++rank) parties.push_back(std::make_unique<Party>(rank));
  return parties;
}

inline bool idle() { return true; }

inline Status connect(const Parties& parties, const Party& party) {
  std::vector<RegionPeer> peers;
  for (const auto& other : parties)
    if (other->rank != party.rank) peers.push_back({other->rank, other->regions->door(), false});
  return party.regions->connect(*party.memory, party.rank, peers, idle);
}

// Until all hear each other, and nobody listens for others any more.
inline void connect_all(const Parties& parties) {
  for (const auto& party : parties) ASSERT_TRUE(connect(parties, *party).ok());
  for (const auto& party : parties) {
    const auto made = party->regions->add(party->piece, 4096);
    ASSERT_TRUE(made.ok() && comes_true([&] { return party->has_opened(); }));
    ASSERT_TRUE(party->regions->remove(*made, well).ok());
  }
}

}  // namespace tutti::runtime::gpu

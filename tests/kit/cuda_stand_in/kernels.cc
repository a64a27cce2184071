// kernels.cc: see kernels.hpp.
#include "kit/cuda_stand_in/kernels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu/host_kernels.hpp"
#include "kit/cuda_stand_in/memory.hpp"
#include "kit/cuda_stand_in/streams.hpp"

namespace stand_in {
namespace {

namespace gpu = tutti::runtime::gpu;

constexpr int kMostThreads = 64;               // of the processor, for a block
constexpr std::chrono::milliseconds kLook{5};  // how soon is seen that the program ends

// What a block takes of a device's room, in threads: also a small one takes a place.
int room_of(int threads) {
  return std::max(threads, kThreadsPerMultiprocessor / kBlocksPerMultiprocessor);
}

std::atomic<std::size_t> blocks_on_devices{0};

// The room of a device.
class Room {
 public:
  // Takes room for so many blocks one after the other, and does something with each; nobody else
  // gets any in between.
  template <typename Begin>
  void take(unsigned blocks, int threads, Begin begin) {
    const std::lock_guard first_come_first_served(turn_);
    for (unsigned block = 0; block < blocks; ++block) {
      {
        std::unique_lock lock(mutex_);
        while (left_ < room_of(threads)) {
          if (ending()) return;
          changed_.wait_for(lock, kLook);
        }
        left_ -= room_of(threads);
        ++blocks_on_devices;
      }
      begin(block);
    }
  }
  void give_back(int threads) {
    const std::lock_guard lock(mutex_);
    left_ += room_of(threads);
    --blocks_on_devices;
    changed_.notify_all();
  }

 private:
  std::mutex turn_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_ = kMultiprocessors * kThreadsPerMultiprocessor;
};

Room& room_on(int ordinal) {
  static auto& rooms = *new std::array<Room, kMostDevices>;
  return rooms[static_cast<std::size_t>(ordinal)];
}

unsigned threads_of_a_block(unsigned launched) {
  const char* const text = std::getenv("CUDA_STAND_IN_BLOCK_THREADS");
  const int wanted = text == nullptr ? 2 : std::clamp(std::atoi(text), 1, kMostThreads);
  return std::min(launched, static_cast<unsigned>(wanted));
}

// The kernels that run, for the end of the program.
class Running {
 public:
  static Running& instance() {
    static auto& running = *new Running;
    return running;
  }

  // False: the program ends.
  bool add(const KernelLaunch& launch) {
    const std::lock_guard lock(mutex_);
    if (ending()) return false;
    launches_.push_back(&launch);
    return true;
  }
  void remove(const KernelLaunch& launch) {
    const std::lock_guard lock(mutex_);
    std::erase(launches_, &launch);
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    for (const KernelLaunch* const launch : launches_) {
      std::uint64_t* const notice = launch->world->notices[launch->world->rank];
      std::atomic_ref(*notice).store(gpu::make_notice(gpu::Why::aborted, 0));
    }
  }

 private:
  std::mutex mutex_;
  std::vector<const KernelLaunch*> launches_;
};

// A block and its threads.
struct BlockOfThreads {
  explicit BlockOfThreads(unsigned threads) : block(threads), left(threads) {}
  gpu::Block block;
  std::atomic<unsigned> left;
};

void run_blocks(const KernelLaunch& launch) {
  const unsigned size = threads_of_a_block(launch.threads);
  const int launched = static_cast<int>(launch.threads);
  Room& room = room_on(launch.ordinal);
  std::vector<std::unique_ptr<BlockOfThreads>> blocks;
  std::vector<std::thread> threads;
  room.take(launch.blocks, launched, [&](unsigned channel) {
    BlockOfThreads& block = *blocks.emplace_back(std::make_unique<BlockOfThreads>(size));
    for (unsigned thread = 0; thread < size; ++thread)
      threads.emplace_back([&, channel, thread] {
        const gpu::Team team{thread, size};
        if (launch.exchange != nullptr)
          gpu::run_exchange(block.block, team, *launch.world, *launch.exchange, channel);
        else
          gpu::run_kernel(launch.reduces, block.block, team, *launch.world, *launch.program,
                          *launch.call, channel);
        if (--block.left == 0) room.give_back(launched);
      });
  });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int blocks_that_fit(int threads) {
  if (threads < 1 || threads > kThreadsPerBlock) return 0;
  return kThreadsPerMultiprocessor / room_of(threads);
}

void run_kernel(const KernelLaunch& launch) {
  Memory::instance().begin_kernel();
  if (Running::instance().add(launch)) {
    run_blocks(launch);
    Running::instance().remove(launch);
  }
  Memory::instance().end_kernel();
}

std::size_t block_count() { return blocks_on_devices; }

void stop_kernels() { Running::instance().stop(); }

SmallKernel::SmallKernel(int ordinal) : ordinal_(ordinal) {
  room_on(ordinal).take(1, 1, [](unsigned) {});
}

SmallKernel::~SmallKernel() { room_on(ordinal_).give_back(1); }

}  // namespace stand_in

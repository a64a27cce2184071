// floor_peer.cc: a floor as a contender, under the same harness as the libraries.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "perf/floors/floor.hpp"

namespace tutti::comparison {
namespace {

constexpr std::size_t kPage = 4096;
// Buffers that begin at the same place of a page get in each other's way in the first cache.
constexpr std::size_t kStagger = 5 * 64;

// Memory for a worker's buffers: handed out in order, had back when all of it has come back, so
// that both workers, who ask alike, get the same places.
class Heap {
 public:
  Heap(std::byte* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  void* allocate(std::size_t bytes) {
    const std::size_t begin = (end_ + kPage - 1) / kPage * kPage + kStagger * (live_ % 8);
    if (begin + bytes > bytes_) return nullptr;
    end_ = begin + bytes;
    ++live_;
    return memory_ + begin;
  }
  void deallocate() {
    if (--live_ == 0) end_ = 0;
  }

 private:
  std::byte* memory_;
  std::size_t bytes_;
  std::size_t end_ = 0;
  std::size_t live_ = 0;
};

std::byte* private_memory(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::_Exit(1);
  }
  return static_cast<std::byte*>(memory);
}

class FloorPeer : public Peer {
 public:
  FloorPeer(std::unique_ptr<floors::Workers> workers, int ranks, std::size_t heap)
      : workers_(std::move(workers)),
        ranks_(ranks),
        heap_(
            floors::buffers_are_shared() ? workers_->heap(workers_->index()) : private_memory(heap),
            heap),
        floor_(floors::make_floor(*workers_, ranks)) {}

  int rank() const override { return workers_->index() * held(); }
  int size() const override { return ranks_; }
  int held() const override { return ranks_ / 2; }
  std::string describe() const override { return floor_->describe(); }

  void* allocate(std::size_t bytes) override { return heap_.allocate(bytes); }
  void deallocate(void*) override { heap_.deallocate(); }

  std::vector<std::string> ways(const Call& call) override {
    ways_ = floor_->ways(call);
    std::vector<std::string> names;
    for (const floors::Way& way : ways_) names.push_back(way.name);
    return names;
  }
  void choose(std::size_t way) override { chosen_ = way; }
  bool run(const Call& call) override {
    ways_[chosen_].run(call);
    return true;
  }

 private:
  std::unique_ptr<floors::Workers> workers_;
  int ranks_;
  Heap heap_;
  std::unique_ptr<floors::Floor> floor_;
  std::vector<floors::Way> ways_;
  std::size_t chosen_ = 0;
};

}  // namespace

std::unique_ptr<Peer> join(int*, char***, Memory) {
  constexpr std::size_t kHeap = std::size_t{64} << 30;
  const char* told = std::getenv("WORLD_SIZE");
  const int ranks = told != nullptr ? std::atoi(told) : 2;
  if (ranks < 2 || ranks % 2 != 0 || ranks > static_cast<int>(floors::kMostRanks)) {
    std::fprintf(stderr, "a floor has two workers: WORLD_SIZE must be even and at most 16\n");
    return nullptr;
  }
  auto workers = floors::Workers::split(floors::buffers_are_shared() ? kHeap : 0);
  return std::make_unique<FloorPeer>(std::move(workers), ranks, kHeap);
}

}  // namespace tutti::comparison

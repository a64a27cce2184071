// floor.hpp: a floor: the ways to do an operation with nothing but its bytes to move. What must
// come about is as in perf/comparison; two workers do the work of all ranks, each holding half of
// them.
//
// A way is valid: no worker reads a buffer before its owner has entered the call, and none leaves
// while the other still reads or writes its buffers. It says nothing of what the next call will be.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/comparison/peer.hpp"
#include "perf/floors/loops.hpp"
#include "perf/floors/workers.hpp"

namespace tutti::floors {

using comparison::Call;
using comparison::Operation;

struct Way {
  std::string name;
  std::function<void(const Call&)> run;
};

class Floor {
 public:
  Floor() = default;
  Floor(const Floor&) = delete;
  Floor& operator=(const Floor&) = delete;
  virtual ~Floor() = default;

  virtual std::string describe() const = 0;
  // What is worth trying for this call; the same for both workers.
  virtual std::vector<Way> ways(const Call& call) = 0;
};

// What a program's one floor is; which it is, is decided by what is linked.
std::unique_ptr<Floor> make_floor(Workers& workers, int ranks);
bool buffers_are_shared();

inline constexpr std::size_t kMostRanks = 16;

// A few places in memory, without an allocation per call.
class Few {
 public:
  void add(std::byte* place) { places_[count_++] = place; }
  std::size_t size() const { return count_; }
  std::byte* operator[](std::size_t i) const { return places_[i]; }
  std::byte* const* begin() const { return places_.data(); }
  std::byte* const* end() const { return places_.data() + count_; }

 private:
  std::array<std::byte*, kMostRanks + 2> places_;
  std::size_t count_ = 0;
};

// Every `to` = the sum of all `from`, which is a copy where that is one.
void sum(Type type, const Few& to, const Few& from, std::size_t bytes, Stores stores);

// The part of `bytes` that a worker does, at whole cache lines.
struct Part {
  std::size_t begin;
  std::size_t bytes;
};
Part half(std::size_t bytes, int worker);

// The kinds of stores that can help with blocks of this size, and what to call them.
std::vector<Stores> stores_for(std::size_t block_bytes);
std::string named(const char* way, Stores stores);

}  // namespace tutti::floors

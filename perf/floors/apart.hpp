// apart.hpp: the floor of more than two ranks whose buffers are private, also to the other ranks of
// their worker, as those of processes are: what leaves a rank goes through slots of shared memory.
#pragma once

#include "perf/floors/floor.hpp"

namespace tutti::floors {

class Apart {
 public:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;

  // Takes kBytes of shared memory.
  Apart(Workers& workers, int ranks, std::byte* memory);

  std::vector<Way> ways(const Call& call);

 private:
  // What one rank does with one slice. Between two stages the workers meet.
  using Stage = void (Apart::*)(const Call& call, std::size_t held);
  struct Method {
    const char* name;
    bool in_parts;  // every rank has its part of the block, and a slice is one of each part
    std::vector<Stage> stages;
  };

  static std::vector<Method> methods(Operation operation);
  bool have_room(std::size_t chunk) const;
  void run(const Call& call, const Method& method, std::size_t chunk, Stores stores);

  void post_slice(const Call& call, std::size_t held);
  void post_parts(const Call& call, std::size_t held);
  void post_blocks(const Call& call, std::size_t held);
  void add_slices(const Call& call, std::size_t held);
  void add_part(const Call& call, std::size_t held);
  void add_block(const Call& call, std::size_t held);
  void take_parts(const Call& call, std::size_t held);
  void take_slices(const Call& call, std::size_t held);
  void take_blocks(const Call& call, std::size_t held);
  void take_root(const Call& call, std::size_t held);

  Part part_of(std::size_t rank) const;
  std::byte* slot(std::size_t from, std::size_t to) const;
  std::byte* slot_for_all(std::size_t from) const { return slot(from, ranks_); }

  Workers& workers_;
  std::byte* memory_;
  std::size_t ranks_;
  std::size_t held_;
  std::size_t first_;     // of the ranks that we hold
  std::size_t turn_ = 0;  // of slices: one is filled while another one may still be read
  // Of the call and the slice at hand.
  std::size_t block_ = 0;
  std::size_t part_ = 0;
  std::size_t chunk_ = 0;
  std::size_t at_ = 0;
  Stores stores_ = Stores::plain;
};

}  // namespace tutti::floors

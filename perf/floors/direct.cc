// direct.cc: the floor where each core may load and store every buffer: nothing is copied that the
// operation does not ask for.
#include "perf/floors/lines.hpp"

namespace tutti::floors {
namespace {

class Direct : public Floor {
 public:
  Direct(Workers& workers, int ranks)
      : workers_(workers), ranks_(ranks), held_(ranks / 2), lines_(workers, ranks) {}

  std::string describe() const override { return "two workers that load and store all buffers"; }

  std::vector<Way> ways(const Call& call) override {
    std::vector<Way> result = lines_.ways(call);
    for (const Stores stores : stores_for(call.block_bytes())) {
      const auto offer = [&](const char* name, void (Direct::*run)(const Call&, Stores)) {
        result.push_back(
            {named(name, stores), [=, this](const Call& c) { (this->*run)(c, stores); }});
      };
      switch (call.operation) {
        case Operation::all_reduce:
          offer("push", &Direct::push_sums);
          offer("pull", &Direct::pull_sums);
          offer("halves", &Direct::sum_halves);
          break;
        case Operation::all_gather:
        case Operation::all_to_all:
          offer("pull", &Direct::pull_blocks);
          offer("push", &Direct::push_blocks);
          break;
        case Operation::reduce_scatter:
          offer("pull", &Direct::reduce_scatter);
          break;
        case Operation::broadcast:
          offer("both", &Direct::broadcast_by_both);
          offer("pull", &Direct::broadcast_by_owner);
          break;
      }
    }
    return result;
  }

 private:
  // Both workers allocate alike, so that a rank's buffer lies at the same place of its heap.
  std::byte* of(int rank, void* mine) const {
    return static_cast<std::byte*>(mine) - workers_.heap(workers_.index()) +
           workers_.heap(rank / held_);
  }
  const comparison::Buffers& like(const Call& call, int rank) const {
    return call.ranks[static_cast<std::size_t>(rank % held_)];
  }
  std::byte* in(const Call& call, int rank, int block = 0) const {
    return of(rank, like(call, rank).input) + static_cast<std::size_t>(block) * call.block_bytes();
  }
  std::byte* out(const Call& call, int rank, int block = 0) const {
    return of(rank, like(call, rank).output) + static_cast<std::size_t>(block) * call.block_bytes();
  }
  int first(int worker) const { return worker * held_; }
  bool mine(int rank) const { return rank / held_ == workers_.index(); }

  Few inputs(const Call& call, std::size_t at, int block = 0) const {
    Few few;
    for (int rank = 0; rank < ranks_; ++rank) few.add(in(call, rank, block) + at);
    return few;
  }
  Few outputs(const Call& call, std::size_t at, bool all) const {
    Few few;
    for (int rank = 0; rank < ranks_; ++rank)
      if (all || mine(rank)) few.add(out(call, rank) + at);
    return few;
  }

  // Each computes half of the result for all.
  void push_sums(const Call& call, Stores stores) {
    const Part part = half(call.block_bytes(), workers_.index());
    workers_.meet();
    sum(call.type, outputs(call, part.begin, true), inputs(call, part.begin), part.bytes, stores);
    workers_.meet();
  }

  // Each computes all of the result for its own.
  void pull_sums(const Call& call, Stores stores) {
    workers_.meet();
    sum(call.type, outputs(call, 0, false), inputs(call, 0), call.block_bytes(), stores);
    workers_.meet();
  }

  // Each computes half of the result for its own, and copies the other half.
  void sum_halves(const Call& call, Stores stores) {
    const Part here = half(call.block_bytes(), workers_.index());
    const Part there = half(call.block_bytes(), workers_.other());
    workers_.meet();
    sum(call.type, outputs(call, here.begin, false), inputs(call, here.begin), here.bytes, stores);
    workers_.meet();
    Few from;
    from.add(out(call, first(workers_.other())) + there.begin);
    sum(call.type, outputs(call, there.begin, false), from, there.bytes, stores);
    workers_.meet();
  }

  void move_block(const Call& call, int from, int to, Stores stores) {
    const int block = call.operation == Operation::all_to_all ? to : 0;
    copy({out(call, to, from), nullptr}, in(call, from, block), call.block_bytes(), stores);
  }

  // Each fetches what its own ranks get; their own blocks while the other comes.
  void pull_blocks(const Call& call, Stores stores) {
    workers_.signal();
    for (const int worker : {workers_.index(), workers_.other()}) {
      if (worker == workers_.other()) workers_.await();
      for (int from = first(worker); from < first(worker) + held_; ++from)
        for (int to = first(workers_.index()); to < first(workers_.index()) + held_; ++to)
          move_block(call, from, to, stores);
    }
    workers_.meet();
  }

  // Each delivers what its own ranks give.
  void push_blocks(const Call& call, Stores stores) {
    workers_.signal();
    for (const int worker : {workers_.index(), workers_.other()}) {
      if (worker == workers_.other()) workers_.await();
      for (int to = first(worker); to < first(worker) + held_; ++to)
        for (int from = first(workers_.index()); from < first(workers_.index()) + held_; ++from)
          move_block(call, from, to, stores);
    }
    workers_.meet();
  }

  void reduce_scatter(const Call& call, Stores stores) {
    workers_.meet();
    for (int rank = first(workers_.index()); rank < first(workers_.index()) + held_; ++rank) {
      Few to;
      to.add(out(call, rank));
      sum(call.type, to, inputs(call, 0, rank), call.block_bytes(), stores);
    }
    workers_.meet();
  }

  // Each copies half of the root's data to all.
  void broadcast_by_both(const Call& call, Stores stores) {
    const Part part = half(call.block_bytes(), workers_.index());
    workers_.meet();
    copy_from_root(call, part, 1, ranks_, stores);
    workers_.meet();
  }

  // Each copies all of it to its own.
  void broadcast_by_owner(const Call& call, Stores stores) {
    const int begin = first(workers_.index());
    workers_.meet();
    copy_from_root(call, {0, call.block_bytes()}, std::max(begin, 1), begin + held_, stores);
    workers_.meet();
  }

  void copy_from_root(const Call& call, Part part, int begin, int end, Stores stores) {
    Few to;
    for (int rank = begin; rank < end; ++rank) to.add(out(call, rank) + part.begin);
    Few from;
    from.add(in(call, 0) + part.begin);
    if (to.size() > 0) sum(call.type, to, from, part.bytes, stores);
  }

  Workers& workers_;
  int ranks_;
  int held_;
  Lines lines_;
};

}  // namespace

std::unique_ptr<Floor> make_floor(Workers& workers, int ranks) {
  return std::make_unique<Direct>(workers, ranks);
}

bool buffers_are_shared() { return true; }

}  // namespace tutti::floors

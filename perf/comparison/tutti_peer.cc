// tutti_peer.cc: Tutti as a contender, through its public headers.
#include <cstdio>
#include <cstdlib>

#include "perf/comparison/peer.hpp"
#include "tutti/tutti.hpp"

namespace tutti::comparison {
namespace {

bool succeeded(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok();
}

class TuttiPeer : public Peer {
 public:
  TuttiPeer(Communicator communicator, Memory memory)
      : communicator_(std::move(communicator)), memory_(memory) {}
  ~TuttiPeer() override { succeeded(communicator_.close()); }

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::string describe() const override { return "Tutti, " + communicator_.transport_name(); }

  void* allocate(std::size_t bytes) override {
    return memory_ == Memory::plain ? allocate_plain(bytes) : tutti::allocate(bytes);
  }
  void deallocate(void* memory) override {
    memory_ == Memory::plain ? std::free(memory) : tutti::deallocate(memory);
  }

  bool run(const Call& call) override {
    constexpr DataType kTypes[] = {DataType::float32, DataType::bfloat16, DataType::float16};
    return succeeded(run_typed(call, kTypes[static_cast<std::size_t>(call.type)]));
  }

 private:
  Status run_typed(const Call& call, DataType type) {
    const void* input = call.input();
    void* output = call.output();
    switch (call.operation) {
      case Operation::all_reduce:
        return communicator_.all_reduce(input, output, call.count, type, ReduceOp::sum);
      case Operation::all_gather:
        return communicator_.all_gather(input, output, call.count, type);
      case Operation::reduce_scatter:
        return communicator_.reduce_scatter(input, output, call.count, type, ReduceOp::sum);
      case Operation::all_to_all:
        return communicator_.all_to_all(input, output, call.count, type);
      case Operation::broadcast:
        return communicator_.broadcast(input, output, call.count, type, 0);
    }
    std::abort();
  }

  Communicator communicator_;
  Memory memory_;
};

}  // namespace

std::unique_ptr<Peer> join(int*, char***, Memory memory) {
  auto communicator = Communicator::from_environment();
  if (!succeeded(communicator.status())) return nullptr;
  return std::make_unique<TuttiPeer>(std::move(*communicator), memory);
}

}  // namespace tutti::comparison

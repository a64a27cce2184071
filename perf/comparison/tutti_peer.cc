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
    return memory_ == Memory::plain ? std::malloc(bytes) : tutti::allocate(bytes);
  }
  void deallocate(void* memory) override {
    memory_ == Memory::plain ? std::free(memory) : tutti::deallocate(memory);
  }

  bool all_reduce(const float* input, float* output, std::size_t count) override {
    return succeeded(
        communicator_.all_reduce(input, output, count, DataType::float32, ReduceOp::sum));
  }

 private:
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

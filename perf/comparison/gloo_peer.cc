// gloo_peer.cc: Gloo as a contender, over TCP, which is all that it has on CPUs. Ranks are started
// by spawn.py, which says in the environment who they are and where they meet.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "perf/comparison/bfloat16.hpp"
#include "perf/comparison/peer.hpp"

namespace tutti::comparison {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void sum_bfloat16(void* sum, const void* a, const void* b, std::size_t count) {
  bfloat16::add(static_cast<std::uint16_t*>(sum), static_cast<const std::uint16_t*>(a),
                static_cast<const std::uint16_t*>(b), count);
}

class GlooPeer : public Peer {
 public:
  GlooPeer(int rank, int size) : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    gloo::transport::tcp::attr attributes(environment("COMPARE_ADDRESS").c_str());
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(environment("COMPARE_FOLDER"));
    context_->connectFullMesh(store, device);
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::string describe() const override {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
           "." + std::to_string(GLOO_VERSION_PATCH) + ", tcp";
  }

  void* allocate(std::size_t bytes) override { return allocate_plain(bytes); }
  void deallocate(void* memory) override { std::free(memory); }

  std::string unable(Operation operation, Type) const override {
    return operation == Operation::reduce_scatter ? "has no such function" : "";
  }

  bool run(const Call& call) override {
    try {
      if (call.type == Type::f32)
        run_typed<float>(call, &gloo::sum<float>);
      else if (call.type == Type::f16)
        run_typed<gloo::float16>(call, &gloo::sum<gloo::float16>);
      else
        run_typed<std::uint16_t>(call, &sum_bfloat16);
      return true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return false;
    }
  }

 private:
  using Sum = void (*)(void*, const void*, const void*, std::size_t);

  template <class T>
  void run_typed(const Call& call, Sum sum) {
    T* input = static_cast<T*>(call.ranks.front().input);
    T* output = static_cast<T*>(call.ranks.front().output);
    const std::size_t all = call.count * static_cast<std::size_t>(size());
    if (call.operation == Operation::all_reduce) {
      gloo::AllreduceOptions options(context_);
      options.setInput(input, call.count);
      options.setOutput(output, call.count);
      options.setReduceFunction(sum);
      gloo::allreduce(options);
    } else if (call.operation == Operation::all_gather) {
      gloo::AllgatherOptions options(context_);
      options.setInput(input, call.count);
      options.setOutput(output, all);
      gloo::allgather(options);
    } else if (call.operation == Operation::all_to_all) {
      gloo::AlltoallOptions options(context_);
      options.setInput(input, all);
      options.setOutput(output, all);
      gloo::alltoall(options);
    } else {
      gloo::BroadcastOptions options(context_);
      options.setOutput(output, call.count);
      options.setRoot(0);
      gloo::broadcast(options);
    }
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace

std::unique_ptr<Peer> join(int*, char***, Memory) {
  try {
    return std::make_unique<GlooPeer>(std::atoi(environment("RANK").c_str()),
                                      std::atoi(environment("WORLD_SIZE").c_str()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return nullptr;
  }
}

}  // namespace tutti::comparison

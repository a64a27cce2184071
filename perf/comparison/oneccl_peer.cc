// oneccl_peer.cc: oneCCL as a contender, with buffers of the host. Ranks are started by Intel MPI's
// launcher or by spawn.py, which say in the environment who they are; they meet in a store of
// oneCCL's own, whose address the first rank leaves in a file.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <oneapi/ccl.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "perf/comparison/peer.hpp"

namespace tutti::comparison {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// By the name that Intel MPI's launcher sets, or else by spawn.py's.
int number(const char* name, const char* other) {
  const std::string told = environment(name);
  return std::atoi((told.empty() ? environment(other) : told).c_str());
}

// Renamed when it is whole, so that nobody reads a part of it.
void leave(const ccl::kvs::address_type& address, const fs::path& place) {
  const fs::path partly = place.string() + ".partly";
  std::ofstream(partly, std::ios::binary)
      .write(address.data(), static_cast<std::streamsize>(address.size()));
  fs::rename(partly, place);
}

ccl::kvs::address_type find(const fs::path& place) {
  for (int attempt = 0; attempt < 1000 && !fs::exists(place); ++attempt)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ccl::kvs::address_type address{};
  std::ifstream file(place, std::ios::binary);
  if (!file.read(address.data(), static_cast<std::streamsize>(address.size())))
    throw std::runtime_error("the first rank did not say where to meet");
  return address;
}

ccl::shared_ptr_class<ccl::kvs> meet(int rank) {
  const fs::path place = fs::path(environment("COMPARE_FOLDER")) / "oneccl-address";
  if (rank != 0) return ccl::create_kvs(find(place));
  auto store = ccl::create_main_kvs();
  leave(store->get_address(), place);
  return store;
}

ccl::datatype datatype_of(Type type) {
  constexpr ccl::datatype kTypes[] = {ccl::datatype::float32, ccl::datatype::bfloat16,
                                      ccl::datatype::float16};
  return kTypes[static_cast<std::size_t>(type)];
}

class OneCclPeer : public Peer {
 public:
  OneCclPeer(int rank, int size)
      : store_(meet(rank)), communicator_(ccl::create_communicator(size, rank, store_)) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::string describe() const override {
    const ccl::library_version version = ccl::get_library_version();
    return "oneCCL " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.update) + ", transport " + environment("CCL_ATL_TRANSPORT");
  }

  void* allocate(std::size_t bytes) override { return allocate_plain(bytes); }
  void deallocate(void* memory) override { std::free(memory); }

  bool run(const Call& call) override {
    try {
      start(call, datatype_of(call.type)).wait();
      return true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return false;
    }
  }

 private:
  ccl::event start(const Call& call, ccl::datatype type) {
    const void* input = call.input();
    void* output = call.output();
    switch (call.operation) {
      case Operation::all_reduce:
        return ccl::allreduce(input, output, call.count, type, ccl::reduction::sum, communicator_);
      case Operation::all_gather:
        return ccl::allgather(input, output, call.count, type, communicator_);
      case Operation::reduce_scatter:
        return ccl::reduce_scatter(input, output, call.count, type, ccl::reduction::sum,
                                   communicator_);
      case Operation::all_to_all:
        return ccl::alltoall(input, output, call.count, type, communicator_);
      case Operation::broadcast:
        return ccl::broadcast(output, call.count, type, 0, communicator_);
    }
    std::abort();
  }

  ccl::shared_ptr_class<ccl::kvs> store_;
  ccl::communicator communicator_;
};

}  // namespace

std::unique_ptr<Peer> join(int*, char***, Memory) {
  try {
    ccl::init();
    return std::make_unique<OneCclPeer>(number("PMI_RANK", "RANK"),
                                        number("PMI_SIZE", "WORLD_SIZE"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return nullptr;
  }
}

}  // namespace tutti::comparison

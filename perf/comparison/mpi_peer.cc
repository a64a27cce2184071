// mpi_peer.cc: an MPI library as a contender; which one is decided by the compiler wrapper.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings, which nobody uses and which do not compile cleanly
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "perf/comparison/bfloat16.hpp"
#include "perf/comparison/peer.hpp"

namespace tutti::comparison {
namespace {

bool succeeded(int code) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::fprintf(stderr, "%s\n", text);
  return false;
}

// MPI has no bfloat16, so its sum is an operation of ours. Compilers make vectors of the loop.
void sum_bfloat16(void* input, void* both, int* length, MPI_Datatype*) {
  auto* sum = static_cast<std::uint16_t*>(both);
  bfloat16::add(sum, sum, static_cast<const std::uint16_t*>(input),
                static_cast<std::size_t>(*length));
}

class MpiPeer : public Peer {
 public:
  explicit MpiPeer(Memory memory) : memory_(memory) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Op_create(&sum_bfloat16, 1, &bfloat16_sum_);
  }
  ~MpiPeer() override {
    MPI_Op_free(&bfloat16_sum_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // A sum of ours would measure our sum; bfloat16's is a shift, which compilers do well.
  std::string unable(Operation operation, Type type) const override {
    return type == Type::f16 && sums(operation) ? "MPI has no such type" : "";
  }

  std::string describe() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<std::size_t>(length));
    return all.substr(0, all.find_first_of(",\n"));
  }

  void* allocate(std::size_t bytes) override {
    if (memory_ == Memory::plain) return allocate_plain(bytes);
    void* memory = nullptr;
    const auto size = static_cast<MPI_Aint>(bytes);
    return succeeded(MPI_Alloc_mem(size, MPI_INFO_NULL, &memory)) ? memory : nullptr;
  }
  void deallocate(void* memory) override {
    if (memory_ == Memory::plain)
      std::free(memory);
    else
      MPI_Free_mem(memory);
  }

  bool run(const Call& call) override {
    const int count = static_cast<int>(call.count);
    const MPI_Datatype type = call.type == Type::f32 ? MPI_FLOAT : MPI_UINT16_T;
    const MPI_Op sum = call.type == Type::f32 ? MPI_SUM : bfloat16_sum_;
    const void* input = call.input();
    void* output = call.output();
    switch (call.operation) {
      case Operation::all_reduce:
        return succeeded(MPI_Allreduce(input, output, count, type, sum, MPI_COMM_WORLD));
      case Operation::all_gather:
        return succeeded(MPI_Allgather(input, count, type, output, count, type, MPI_COMM_WORLD));
      case Operation::reduce_scatter:
        return succeeded(MPI_Reduce_scatter_block(input, output, count, type, sum, MPI_COMM_WORLD));
      case Operation::all_to_all:
        return succeeded(MPI_Alltoall(input, count, type, output, count, type, MPI_COMM_WORLD));
      case Operation::broadcast:
        return succeeded(MPI_Bcast(output, count, type, 0, MPI_COMM_WORLD));
    }
    return false;
  }

 private:
  Memory memory_;
  MPI_Op bfloat16_sum_ = MPI_OP_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

std::unique_ptr<Peer> join(int* argc, char*** argv, Memory memory) {
  if (!succeeded(MPI_Init(argc, argv))) return nullptr;
  return std::make_unique<MpiPeer>(memory);
}

}  // namespace tutti::comparison

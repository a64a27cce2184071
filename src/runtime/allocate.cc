// tutti::allocate and register_memory: the public door to the heap of shared memory.
#include "transport/shm/heap.hpp"
#include "tutti/communicator.hpp"

namespace tutti {

void* allocate(std::size_t bytes) { return transport::shared_allocate(bytes); }

void deallocate(void* memory) { transport::shared_deallocate(memory); }

Status register_memory(const void* memory, std::size_t bytes) {
  return transport::share_in_place(memory, bytes);
}

}  // namespace tutti

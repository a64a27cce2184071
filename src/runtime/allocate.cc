// tutti::allocate: the public door to the heap of shared memory.
#include "transport/shm/heap.hpp"
#include "tutti/communicator.hpp"

namespace tutti {

void* allocate(std::size_t bytes) { return transport::shared_allocate(bytes); }

void deallocate(void* memory) { transport::shared_deallocate(memory); }

}  // namespace tutti

// memory.hpp: part of the stand-in for CUDA, which is a test kit and NOT CUDA: the memory of
// devices that do not exist, and host memory that is called page-locked.
//
// "Device memory" is host memory with two mappings: at the address that programs get nobody may
// read or write, so that code which takes it for the host's crashes; only the stand-in's own copies
// go through the other. Kernels know the program's addresses, so all of it is open to everybody
// while one runs, on whatever device: what the host gets wrong then goes unnoticed, as does a
// kernel that reaches a device which was never made its peer. Fresh memory is not zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "transport/cuda/types.hpp"

namespace stand_in {

using namespace tutti::transport::cuda;

enum class Kind { device, allocated, registered };  // the last two: of the host, page-locked

struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::size_t mapped_bytes = 0;
  Kind kind = Kind::device;
  int ordinal = 0;
  Context context = nullptr;
  std::byte* reachable = nullptr;  // where the stand-in itself finds the bytes
  bool pooled = false;             // of a pool, which other processes and peers cannot have
  int file = -1;                   // of a device's: the memory itself, for other processes
  bool imported = false;           // another process's
  std::uint64_t id = 0;            // of no other one
  std::uint64_t object = 0;        // what is mapped there; 0: memory and addresses are one thing
  unsigned open_to = 0;            // of what is mapped: devices that may use it, bits
};

// Memory of a device that need not be anywhere, as cuMemCreate makes it.
struct Object {
  int file = -1;
  std::size_t bytes = 0;
  int ordinal = 0;
  int handle_types = 0;
  int references = 1;  // handles, and mappings
};

// Of what another process has made: its owner sees that somebody has it, until it is closed.
void note_use(int file);

// Threading  any thread.
class Memory {
 public:
  static Memory& instance();  // never destroyed: streams may still work when a program ends

  // 0: there is none left.
  std::uintptr_t allocate_device(Context context, int ordinal, std::size_t bytes,
                                 bool pooled = false);
  // The memory behind a file of that number, of process `owner`. 0: there is none.
  std::uintptr_t import_device(Context context, int ordinal, int owner, int file);
  void* allocate_host(Context context, int ordinal, std::size_t bytes);
  bool register_host(Context context, int ordinal, void* memory, std::size_t bytes);
  // False: there is no such thing there.
  bool release(std::uintptr_t begin, Kind kind);

  std::optional<Allocation> find(std::uintptr_t address);
  // Where the stand-in itself finds so many bytes from `address` on; null: beyond the end of an
  // allocation. Memory that is not known is the host's.
  std::byte* reach(std::uintptr_t address, std::size_t bytes);

  // ---- Objects, and addresses for them: memory_mapping.cc ----

  // 0: there is none left.
  std::uint64_t create_object(int ordinal, std::size_t bytes, int handle_types);
  // What a descriptor stands for, which stays the caller's. 0: for no object.
  std::uint64_t import_object(int descriptor);
  std::optional<Object> find_object(std::uint64_t object);
  bool retain_object(std::uint64_t object);
  bool release_object(std::uint64_t object);

  // 0: there is no room.
  std::uintptr_t reserve(std::size_t bytes);
  // False of all: there is no such thing there, or something is in the way.
  bool unreserve(std::uintptr_t begin, std::size_t bytes);
  bool map(std::uintptr_t at, std::size_t bytes, std::uint64_t object);
  bool unmap(std::uintptr_t at, std::size_t bytes);
  // Of what is mapped without a gap.
  bool set_access(std::uintptr_t at, std::size_t bytes, int ordinal, bool open);

  std::size_t object_count();
  std::size_t reservation_count();

  // Between the two a kernel may load and store all memory of devices, also what is made meanwhile.
  void begin_kernel();
  void end_kernel();

  std::size_t count(Kind kind);
  std::size_t device_bytes(int ordinal);
  // Whether another process has this piece of a device mapped.
  bool is_mapped_elsewhere(std::uintptr_t begin);

 private:
  void add(const Allocation& allocation);
  std::uintptr_t map_device(Allocation made);
  void protect();
  void protect_one(const Allocation& allocation) const;
  std::byte* reach_mapped(const Allocation& first, std::uintptr_t address, std::size_t bytes);
  void drop_reference(std::uint64_t object);

  // Addresses that programs get, and those under which the stand-in reaches the same.
  struct Reservation {
    std::size_t bytes = 0;
    std::byte* reachable = nullptr;
  };

  std::mutex mutex_;
  int kernels_ = 0;  // that run
  std::uint64_t last_id_ = 0;
  std::map<std::uintptr_t, Allocation> allocations_;  // by where they begin
  std::map<std::uintptr_t, Reservation> reservations_;
  std::uint64_t last_object_ = 0;
  std::map<std::uint64_t, Object> objects_;
};

}  // namespace stand_in

// The one table of the process, and who may ask it.
#include "transport/shm/remap.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <new>
#include <string>

#include "transport/shm/remap_table.hpp"

namespace tutti::transport::shm {
namespace {

std::atomic<RemapTable*>& current_table() {
  static std::atomic<RemapTable*> table{nullptr};
  return table;
}

bool anything_remapped() {
  const RemapTable* table = current_table().load(std::memory_order_acquire);
  return table != nullptr && table->in_use();
}

// By all threads; whether there is a table yet or not, because one may come before a fork is over.
std::atomic<int>& forks_under_way() {
  static std::atomic<int> forks{0};
  return forks;
}

void before_fork() {
  forks_under_way().fetch_add(1);
  if (RemapTable* table = current_table().load()) table->before_fork();
}

void after_fork() { forks_under_way().fetch_sub(1); }

// A child begins without a table.
void after_fork_in_child() {
  forks_under_way().store(0);
  if (RemapTable* table = current_table().exchange(nullptr)) table->close_in_child();
}

// From the start of the program, so that no fork is under way of which only the end is heard.
[[maybe_unused]] const int heeds_forks =
    pthread_atfork(before_fork, after_fork, after_fork_in_child);

// Made on first use and never destroyed, as the heap. In pages of its own, because what it says of
// memory must not lie in that memory. Null with the reason when it cannot work here.
RemapTable* table_or(Status& refused) {
  static std::mutex making;
  static Status* const remembered = new Status;
  const std::lock_guard lock(making);
  if (RemapTable* table = current_table().load(std::memory_order_acquire)) return table;
  refused = *remembered;
  if (!refused.ok()) return nullptr;
  void* room =
      mmap(nullptr, sizeof(RemapTable), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    refused = system_error("mmap");
    return nullptr;
  }
  RemapTable* table = new (room) RemapTable(forks_under_way());
  refused = table->start();
  if (!refused.ok()) {
    *remembered = refused;
    return nullptr;  // its thread, if there is one, waits for nothing
  }
  current_table().store(table);  // before anybody asks whether a fork is under way
  return table;
}

std::uintptr_t first_page(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) / kPageBytes * kPageBytes;
}

std::uintptr_t last_page_end(const void* memory, std::size_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(memory) + bytes + kPageBytes - 1) / kPageBytes *
         kPageBytes;
}

bool in_address_space(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return bytes > 0 && begin < kAddressEnd && bytes < kAddressEnd - begin;
}

}  // namespace

Status remap(const void* memory, std::size_t bytes, Insistence insistence) {
  if (!in_address_space(memory, bytes))
    return Status(StatusCode::invalid_argument, "that is no memory of a program");
  Status refused;
  RemapTable* table = table_or(refused);
  if (table == nullptr) return refused;
  const Reason reason = table->add(first_page(memory), last_page_end(memory, bytes),
                                   insistence == Insistence::patient);
  if (reason == nullptr) return {};
  return Status(StatusCode::unsupported, std::string("this memory cannot be shared where it is: ") +
                                             reason + "; take memory from tutti::allocate");
}

Status remap_possible() {
  Status refused;
  table_or(refused);
  return refused;
}

std::optional<SharedBlock> find_remapped(const void* memory, std::size_t bytes) {
  if (!anything_remapped() || !in_address_space(memory, bytes)) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return current_table().load()->find(begin, begin + bytes);
}

void withdraw_remapped(const void* memory, std::size_t bytes) {
  if (!anything_remapped() || !in_address_space(memory, bytes)) return;
  current_table().load()->withdraw(first_page(memory), last_page_end(memory, bytes));
}

bool remapped_file_exists(std::uint32_t region) {
  return anything_remapped() && current_table().load()->exists(region);
}

std::uint64_t remap_generation() {
  const RemapTable* table = current_table().load(std::memory_order_acquire);
  return table == nullptr ? 0 : table->generation();
}

bool remap_settled() {
  const RemapTable* table = current_table().load(std::memory_order_acquire);
  return table == nullptr || table->settled();
}

bool remapped_of_break(const void* memory, std::size_t bytes) {
  const RemapTable* table = current_table().load(std::memory_order_acquire);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return table != nullptr && table->is_of_break(begin, begin + bytes);
}

RemapUse::~RemapUse() { end(); }

void RemapUse::begin() {
  RemapTable* table = current_table().load(std::memory_order_acquire);
  if (used_ != nullptr || table == nullptr) return;
  table->begin_use();
  used_ = table;
}

void RemapUse::end() {
  // A child inherits neither the table nor the call.
  if (used_ != nullptr && used_ == current_table().load())
    static_cast<RemapTable*>(used_)->end_use();
  used_ = nullptr;
}

std::size_t remapped_bytes() { return anything_remapped() ? current_table().load()->bytes() : 0; }

}  // namespace tutti::transport::shm

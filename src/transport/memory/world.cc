// world.cc: makes, publishes and frees the queues of ranks that are threads.
#include "transport/memory/world.hpp"

#include <cstring>
#include <new>

#include "base/assert.hpp"
#include "transport/fifo/outbox.hpp"

namespace tutti::transport {

std::shared_ptr<MemoryWorld> MemoryWorld::make(const TransportOptions& options) {
  return std::make_shared<memory::World>(options);
}

namespace memory {
namespace {

constexpr std::align_val_t kQueueAlignment{4096};

std::size_t as_size(int value) { return static_cast<std::size_t>(value); }

}  // namespace

World::World(const TransportOptions& options)
    : options_(options),
      layout_(fifo::Layout::of(options.frame_bytes_max, options.queue_bytes)),
      doorbells_(as_size(options.size)),
      queues_(as_size(options.size) * as_size(options.size) * as_size(options.channel_count)),
      outboxes_(as_size(options.size)) {
  TUTTI_ASSERT(options.size >= 1, "a world has at least one rank");
  TUTTI_ASSERT(options.channel_count >= 1, "a world has at least one channel");
}

World::~World() {
  for (auto& queue : queues_)
    if (std::byte* memory = queue.load(std::memory_order_acquire))
      ::operator delete(memory, kQueueAlignment);
  for (std::byte* memory : outboxes_) ::operator delete(memory, kQueueAlignment);
}

std::size_t World::index(Rank from, Rank to, int channel) const {
  return (as_size(from) * as_size(options_.size) + as_size(to)) * as_size(options_.channel_count) +
         as_size(channel);
}

std::byte* World::make_queue(Rank from, Rank to, int channel) {
  auto* memory = static_cast<std::byte*>(::operator new(layout_.bytes(), kQueueAlignment));
  // Payloads are left as they are: nobody reads one before it was written.
  std::memset(memory, 0, layout_.payloads_offset());
  fifo::initialize(memory, layout_);
  queues_[index(from, to, channel)].store(memory, std::memory_order_release);
  return memory;
}

std::byte* World::make_outbox(Rank rank) {
  std::byte*& memory = outboxes_[as_size(rank)];
  memory =
      static_cast<std::byte*>(::operator new(fifo::Outbox::bytes_of(layout_), kQueueAlignment));
  return memory;
}

// Of the C library, which gives untouched pages; moved on to where a page begins.
std::span<std::byte> World::shared_memory() {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t bytes = as_size(size()) * kSharedBytesEach;
  std::call_once(shared_memory_made_, [&] {
    shared_memory_.reset(static_cast<std::byte*>(std::calloc(bytes + kPageBytes, 1)));
  });
  if (shared_memory_ == nullptr) return {};
  void* begin = shared_memory_.get();
  std::size_t room = bytes + kPageBytes;
  return {static_cast<std::byte*>(std::align(kPageBytes, bytes, begin, room)), bytes};
}

std::byte* World::find_queue(Rank from, Rank to, int channel) const {
  return queues_[index(from, to, channel)].load(std::memory_order_acquire);
}

}  // namespace memory
}  // namespace tutti::transport

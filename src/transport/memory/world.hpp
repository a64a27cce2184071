// world.hpp: what MemoryWorld holds. Queues are made by the rank that sends, published by one
// atomic pointer, and freed with the world, so that a rank may leave before its frames are read.
//
// Internal to the memory transport.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/fifo/doorbell.hpp"
#include "transport/fifo/queue.hpp"
#include "transport/memory/transport.hpp"

namespace tutti::transport::memory {

class World final : public MemoryWorld {
 public:
  explicit World(const TransportOptions& options);
  ~World() override;

  int size() const override { return options_.size; }
  const TransportOptions& options() const { return options_; }
  const fifo::Layout& layout() const { return layout_; }
  fifo::Doorbell& doorbell(Rank rank) { return doorbells_[static_cast<std::size_t>(rank)]; }

  // A new queue, published for the rank that receives. Called once per (from, to, channel).
  std::byte* make_queue(Rank from, Rank to, int channel);

  // As Transport::shared_words().
  std::span<std::atomic<std::uint64_t>> shared_words() { return shared_words_; }

  // As Transport::shared_memory(). Made when it is first asked for, by any thread.
  std::span<std::byte> shared_memory();

  // Memory for a rank's outbox. Called once per rank, by its own thread.
  std::byte* make_outbox(Rank rank);

  // The queue that `from` published, or null while it has not.
  std::byte* find_queue(Rank from, Rank to, int channel) const;

 private:
  std::size_t index(Rank from, Rank to, int channel) const;

  TransportOptions options_;
  fifo::Layout layout_;
  std::vector<fifo::Doorbell> doorbells_;
  std::vector<std::atomic<std::byte*>> queues_;
  std::vector<std::byte*> outboxes_;  // by rank
  std::array<std::atomic<std::uint64_t>, kSharedWordCount> shared_words_{};
  std::once_flag shared_memory_made_;
  std::unique_ptr<std::byte, decltype(&std::free)> shared_memory_{nullptr, &std::free};
};

}  // namespace tutti::transport::memory

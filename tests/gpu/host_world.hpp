// host_world.hpp: a world of device ranks in one process: control memory, states and blocks as
// threads, as a host would set them up on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host_kernels.hpp"
#include "runtime/gpu/device_world.hpp"
#include "runtime/gpu/encode.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

// One call of all ranks.
struct Job {
  const std::vector<EncodedProgram>* programs = nullptr;
  std::optional<DataType> reduces;  // none: it only moves bytes
  std::vector<DeviceCall> calls;    // by rank
  Rank absent = -1;                 // this rank does not come
  // Instead, by rank: what it does with others; null: nothing.
  std::vector<const DeviceExchange*> exchanges;
};

class HostWorld {
 public:
  // `threads`: of a block.
  HostWorld(ControlShape shape, std::uint32_t threads);

  const ControlShape& shape() const { return shape_; }

  // Memory that peers can address: as region 1 of the rank.
  void share(Rank rank, std::byte* arena);
  static MemoryRef reference(const std::byte* arena, const std::byte* memory) {
    return {1, 0, static_cast<std::uint64_t>(memory - arena)};
  }

  // All ranks do all jobs, one after the other, as long as none fails. With `before`, a thread of
  // each rank does that before each job.
  using Before = void (*)(void* context, std::size_t rank, std::size_t job);
  bool run(std::span<const Job> jobs, Before before = nullptr, void* context = nullptr);

  // From now on the region comes and goes as the rank's gate says, which is closed.
  void put_up_gates();
  void set_gate(Rank rank, std::uint32_t generation);
  // Even: no block of the channel is in a call in which it touches memory directly.
  std::uint64_t visits(Rank rank, std::uint32_t channel);

  // As the host aborts; any rank's memory will do.
  void abort(Rank rank);
  // What a rank failed of, once it has; Why::none before.
  ErrorRecord error(Rank rank);
  // The number of the latest arrival record that `peer` has left `rank` on a channel.
  std::uint64_t last_arrival(Rank rank, Rank peer, std::uint32_t channel) const;
  // Of the message of this number, from 0, on channel 0 from `peer` to `rank`.
  SlotHeader header(Rank rank, Rank peer, std::uint64_t number) const;
  // How many messages `rank` has sent to `peer` on a lane of transfers.
  std::uint64_t messages_sent(Rank rank, Rank peer, std::uint32_t lane) const;
  // As if so many messages had been sent through all queues of low latency.
  void set_flagged_messages(std::uint64_t count);

 private:
  struct Memory {
    std::vector<std::uint64_t> control;
    std::vector<std::uint64_t> payloads;  // apart from it, by peer
    std::vector<std::byte*> inboxes;
    std::vector<std::byte*> outboxes;
    std::vector<std::byte*> inbox_payloads;
    std::vector<std::byte*> outbox_payloads;
    std::vector<std::uint64_t*> notices;
    std::vector<std::uint64_t> regions;
    std::vector<std::uint64_t> gates;
    std::vector<std::uint64_t> visits;
    std::vector<PeerState> peers;
    std::vector<std::uint64_t> sequences;
    std::vector<LaneState> lanes;
    ErrorRecord error;
    DeviceWorld world;
  };
  // One block, and all blocks of its rank.
  struct Place {
    Block& block;
    Barrier& all;
    std::size_t rank;
    std::uint32_t channel;
  };
  bool run_thread(const Place& place, Team team, std::span<const Job> jobs, Before before,
                  void* context);
  bool run_job(const Place& place, Team team, const Job& job);
  std::byte* control(std::size_t rank);
  std::byte* payloads(std::size_t rank, std::size_t peer);

  ControlShape shape_;
  std::uint32_t threads_;
  std::vector<std::unique_ptr<Memory>> ranks_;
};

}  // namespace tutti::runtime::gpu

// Sets worlds up, and runs their blocks on threads.
#include "host_world.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

namespace tutti::runtime::gpu {
namespace {

// Control memory begins at a cache line.
constexpr std::size_t kLine = 128;

std::byte* at_line(std::vector<std::uint64_t>& memory) {
  auto* const begin = reinterpret_cast<std::byte*>(memory.data());
  return begin + (kLine - reinterpret_cast<std::uintptr_t>(begin) % kLine) % kLine;
}

}  // namespace

HostWorld::HostWorld(ControlShape shape, std::uint32_t threads) : shape_(shape), threads_(threads) {
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    auto memory = std::make_unique<Memory>();
    memory->control.resize((shape.bytes() + kLine) / sizeof(std::uint64_t) + 1);
    memory->payloads.resize((shape.ranks * shape.payload_bytes() + kLine) / sizeof(std::uint64_t) +
                            1);
    memory->regions.resize(2 * std::size_t{shape.ranks});
    memory->peers.resize(shape.streams());
    memory->sequences.resize(shape.channels);
    memory->lanes.resize(2 * shape.lane_states());
    ranks_.push_back(std::move(memory));
  }
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    Memory& memory = *ranks_[rank];
    for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
      memory.inboxes.push_back(control(rank) + shape.inbox_at(peer));
      memory.outboxes.push_back(control(peer) + shape.inbox_at(rank));
      memory.inbox_payloads.push_back(payloads(rank, peer));
      memory.outbox_payloads.push_back(payloads(peer, rank));
      memory.notices.push_back(reinterpret_cast<std::uint64_t*>(control(peer)));
    }
    memory.world = {shape,
                    rank,
                    2,
                    memory.inboxes.data(),
                    memory.outboxes.data(),
                    memory.inbox_payloads.data(),
                    memory.outbox_payloads.data(),
                    memory.notices.data(),
                    memory.regions.data(),
                    memory.peers.data(),
                    memory.sequences.data(),
                    &memory.error,
                    nullptr,
                    nullptr,
                    memory.lanes.data()};
  }
}

std::byte* HostWorld::control(std::size_t rank) { return at_line(ranks_[rank]->control); }

std::byte* HostWorld::payloads(std::size_t rank, std::size_t peer) {
  return at_line(ranks_[rank]->payloads) + peer * shape_.payload_bytes();
}

void HostWorld::share(Rank rank, std::byte* arena) {
  for (auto& memory : ranks_)
    memory->regions[2 * static_cast<std::size_t>(rank) + 1] =
        reinterpret_cast<std::uint64_t>(arena);
}

bool HostWorld::run(std::span<const Job> jobs, Before before, void* context) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Barrier>> barriers;
  std::vector<std::thread> threads;
  std::atomic<bool> all_well = true;
  for (std::size_t rank = 0; rank < shape_.ranks; ++rank) {
    Barrier& all = *barriers.emplace_back(std::make_unique<Barrier>(shape_.channels * threads_));
    for (std::uint32_t channel = 0; channel < shape_.channels; ++channel) {
      Block& block = *blocks.emplace_back(std::make_unique<Block>(threads_));
      for (std::uint32_t thread = 0; thread < threads_; ++thread)
        threads.emplace_back([&, rank, channel, thread] {
          if (!run_thread({block, all, rank, channel}, {thread, threads_}, jobs, before, context))
            all_well = false;
        });
    }
  }
  for (std::thread& thread : threads) thread.join();
  return all_well;
}

bool HostWorld::run_thread(const Place& place, Team team, std::span<const Job> jobs, Before before,
                           void* context) {
  HostPolicy policy(place.block.barrier, team);
  // Lanes go from block to block, so that one launch is over before the next one begins.
  const bool exchanges =
      std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return !job.exchanges.empty(); });
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    if (job.absent == static_cast<Rank>(place.rank)) return true;
    if (before != nullptr && team.thread == 0 && place.channel == 0) before(context, place.rank, j);
    if (exchanges) place.all.meet(false);
    policy.sync();
    const bool well = run_job(place, team, job);
    policy.sync();  // as one kernel ends before the next one begins
    if (exchanges ? place.all.meet(!well) : !well) return false;
  }
  return true;
}

bool HostWorld::run_job(const Place& place, Team team, const Job& job) {
  const DeviceWorld& world = ranks_[place.rank]->world;
  if (!job.exchanges.empty()) {
    const DeviceExchange* const exchange = job.exchanges[place.rank];
    if (exchange == nullptr || place.channel >= exchange->blocks) return true;
    return run_exchange(place.block, team, world, *exchange, place.channel);
  }
  const DeviceCall& call = job.calls[place.rank];
  if (place.channel >= call.channels) return true;
  return run_kernel(job.reduces, place.block, team, world, (*job.programs)[place.rank].header(),
                    call, place.channel);
}

void HostWorld::put_up_gates() {
  for (auto& memory : ranks_) {
    memory->gates.resize(2);
    memory->visits.resize(shape_.channels);
    memory->world.gates = memory->gates.data();
    memory->world.visits = memory->visits.data();
  }
}

void HostWorld::set_gate(Rank rank, std::uint32_t generation) {
  HostPolicy::set_gate(&ranks_[static_cast<std::size_t>(rank)]->gates[1], generation);
}

std::uint64_t HostWorld::visits(Rank rank, std::uint32_t channel) {
  Barrier nobody(1);
  HostPolicy policy(nobody, {});
  return policy.load_acquire(Site::visit_see,
                             &ranks_[static_cast<std::size_t>(rank)]->visits[channel]);
}

void HostWorld::abort(Rank rank) {
  auto* const notice = reinterpret_cast<std::uint64_t*>(control(static_cast<std::size_t>(rank)));
  std::atomic_ref(*notice).store(make_notice(Why::aborted, static_cast<std::uint32_t>(rank) + 1));
}

ErrorRecord HostWorld::error(Rank rank) {
  ErrorRecord& record = ranks_[static_cast<std::size_t>(rank)]->error;
  Barrier nobody(1);
  HostPolicy policy(nobody, {});
  if (policy.load_acquire(Site::error_see, &record.ready) == 0) return {};
  return record;
}

std::uint64_t HostWorld::last_arrival(Rank rank, Rank peer, std::uint32_t channel) const {
  const Memory& memory = *ranks_[static_cast<std::size_t>(rank)];
  const auto& mailbox = *reinterpret_cast<const Mailbox*>(
      memory.inboxes[static_cast<std::size_t>(peer)] + shape_.mailbox_at(channel));
  return std::max(mailbox.arrivals[0].number, mailbox.arrivals[1].number);
}

SlotHeader HostWorld::header(Rank rank, Rank peer, std::uint64_t number) const {
  const Memory& memory = *ranks_[static_cast<std::size_t>(rank)];
  return *reinterpret_cast<const SlotHeader*>(memory.inboxes[static_cast<std::size_t>(peer)] +
                                              shape_.header_at(0, number));
}

std::uint64_t HostWorld::messages_sent(Rank rank, Rank peer, std::uint32_t lane) const {
  return ranks_[static_cast<std::size_t>(rank)]
      ->lanes[std::size_t{lane} * shape_.ranks + static_cast<std::size_t>(peer)]
      .messages;
}

void HostWorld::set_flagged_messages(std::uint64_t count) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (PeerState& peer : ranks_[rank]->peers) peer.flagged_sent = peer.flagged_received = count;
    for (std::uint32_t channel = 0; channel < shape_.channels; ++channel)
      for (std::uint32_t peer = 0; peer < shape_.ranks; ++peer) {
        std::byte* const at = control(rank) + shape_.inbox_at(peer) + shape_.mailbox_at(channel);
        reinterpret_cast<Mailbox*>(at)->word_freed = count;
      }
  }
}

}  // namespace tutti::runtime::gpu

// members.hpp: ranks that join a device world one by one. Here these are threads, each with a
// device of its own, that take one another for other processes, and for ones of other hosts: then
// queues in memory stand for the network.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/contract.hpp"
#include "gpu/call_data.hpp"
#include "gpu_world/host_device.hpp"
#include "gpu_world/worlds.hpp"
#include "transport/memory/transport.hpp"

namespace tutti::runtime::gpu {

// An all-gather of texts among threads.
class Table {
 public:
  explicit Table(int ranks) : texts_(static_cast<std::size_t>(ranks)), barrier_(ranks) {}

  std::vector<std::string> exchange(Rank rank, const std::string& mine) {
    texts_[static_cast<std::size_t>(rank)] = mine;
    barrier_.arrive_and_wait();
    std::vector<std::string> all = texts_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

struct Member {
  std::unique_ptr<HostDevice> device;
  std::string process;
  std::vector<int> hosts;
  std::unique_ptr<GpuWorld> world;
  Status status;
  std::function<void(const std::string&)> tell;
};

// Where `hosts` are several: a number for each rank.
inline std::vector<Member> members_of(const std::vector<std::string>& processes,
                                      const std::vector<int>& hosts = {}) {
  std::vector<Member> members;
  for (const std::string& process : processes) {
    Member& member = members.emplace_back();
    member.process = process;
    member.hosts = hosts;
    member.device = std::make_unique<HostDevice>(
        HostDeviceOptions{static_cast<int>(members.size()), 64, 32, true});
  }
  return members;
}

// Each rank on a thread.
inline void for_all(std::vector<Member>& members, const std::function<void(Member&, Rank)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < members.size(); ++i)
    threads.emplace_back([&, i] { work(members[i], static_cast<Rank>(i)); });
  for (std::thread& thread : threads) thread.join();
}

// What stands for the network: how a rank connects. The ranks share the exchange.
using Connect = std::function<Result<std::unique_ptr<Transport>>(
    const transport::TransportOptions& options, const ExchangeFunction& exchange)>;

// Queues in memory, made anew for each world.
inline Connect connect_in_memory(int ranks) {
  transport::TransportOptions queues;
  queues.size = ranks;
  queues.frame_bytes_max = 1024;
  queues.queue_bytes = 4096;
  return [network = transport::MemoryWorld::make(queues)](
             const transport::TransportOptions& options,
             const ExchangeFunction&) -> Result<std::unique_ptr<Transport>> {
    return transport::make_memory_transport(network, options.rank);
  };
}

inline void join_all(std::vector<Member>& members, const Connect& connect,
                     const GpuOptions& options = small_options()) {
  Table table(static_cast<int>(members.size()));
  for_all(members, [&](Member& member, Rank rank) {
    GpuSeat seat;
    seat.device = member.device.get();
    seat.rank = rank;
    seat.ranks = static_cast<int>(members.size());
    seat.process = member.process;
    seat.exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      return table.exchange(rank, mine);
    };
    seat.hosts = member.hosts;
    seat.tell = member.tell;
    seat.connect = [&] {
      transport::TransportOptions mine;
      mine.rank = rank;
      mine.size = seat.ranks;
      mine.frame_bytes_max = 1024;
      mine.queue_bytes = 4096;
      mine.job_secret = "a secret of tests";
      return connect(mine, seat.exchange);
    };
    auto world = GpuWorld::join(seat, options);
    member.status = world.status();
    if (world.ok()) member.world = *std::move(world);
  });
}

inline void join_all(std::vector<Member>& members, const GpuOptions& options = small_options()) {
  join_all(members, connect_in_memory(static_cast<int>(members.size())), options);
}

// Between hosts a word takes its time.
inline bool others_leave(const GpuWorld& world) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!world.have_others_left() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return world.have_others_left();
}

// As those that join leave: after a word to all others, and when all have said it.
inline void leave_all(std::vector<Member>& members) {
  for (Member& member : members)
    if (member.world) {
      EXPECT_FALSE(members.size() > 1 && member.world->have_others_left());
      break;
    }
  for (Member& member : members)
    if (member.world) member.world->say_goodbye();
  for (Member& member : members)
    if (member.world) {
      EXPECT_TRUE(others_leave(*member.world));
      member.world.reset();
      EXPECT_EQ(member.device->allocations(), 0);
      EXPECT_EQ(member.device->imports(), 0);
    }
}

inline Status call_and_wait(Member& member, Rank rank, const GpuCall& call) {
  const StreamHandle stream = *member.device->make_stream();
  GpuRank& mine = member.world->rank(rank);
  Status status = mine.call(call, stream);
  if (status.ok()) status = mine.synchronize(stream);
  member.device->destroy_stream(stream);
  return status;
}

inline GpuCall sum_in(std::vector<float>& memory) {
  GpuCall call;
  call.input = call.output = memory.data();
  call.count = memory.size();
  return call;
}

// A call of rank 0 that cannot end by itself fails because of what happens beside it.
inline void expect_failure(std::vector<Member>& members, StatusCode code, Rank culprit,
                           const std::function<void()>& happens, std::string_view says = "") {
  std::vector<float> memory(300, 1);
  std::thread waiting([&] {
    const Status status = call_and_wait(members[0], 0, sum_in(memory));
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(status.culprit(), culprit) << status.to_string();
    EXPECT_THAT(status.message(), testing::HasSubstr(says));
  });
  happens();
  waiting.join();
}

inline void wait_for_launch(const Member& member) {
  while (member.device->launches() == 0) std::this_thread::yield();
}

// One call of all ranks gives what its contract says. The number decides the data, and whether it
// is in place.
inline void expect_call(std::vector<Member>& members, Collective collective, DataType type,
                        std::size_t count, std::uint64_t number) {
  ScheduleShape shape;
  shape.collective = collective;
  shape.ranks = static_cast<int>(members.size());
  shape.root = shape.ranks - 1;
  const bool in_place = number % 2 == 0 && collectives::may_run_in_place(collective);
  CallData data({shape, type, ReduceOp::sum, count, in_place, number});
  for_all(members, [&](Member& member, Rank rank) {
    std::vector<std::byte> memory = data.seat(rank).image;
    GpuCall call;
    call.collective = collective;
    call.root = shape.root;
    call.type = type;
    call.count = count;
    call.input = memory.data() + data.seat(rank).input_at;
    call.output = memory.data() + data.seat(rank).output_at;
    const Status status = call_and_wait(member, rank, call);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(data.judge(rank, memory.data()), "") << to_string(collective) << " " << count;
  });
}

// Every collective, at sizes from nothing to many slots.
inline void expect_contracts(std::vector<Member>& members) {
  std::uint64_t number = 0;
  for (const Collective collective : kAllCollectives)
    for (const std::size_t count : {0U, 1U, 13U, 500U})
      if (collective != Collective::barrier || count == 0)
        expect_call(members, collective, DataType::float32, count, ++number);
}

}  // namespace tutti::runtime::gpu

// Calls enqueued on streams: what they make of device memory, in which order, and what becomes of
// them when something fails.
#include "nccl/stream_worker.hpp"

#include <gmock/gmock.h>

#include <future>
#include <numeric>

#include "workers.hpp"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class StreamWorkers : public OnStandIn {};

// Values that differ by rank and place, small enough for sums of them.
std::vector<int> values_of(Rank rank, std::size_t count) {
  std::vector<int> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = rank * 1000 + static_cast<int>(i % 997);
  return values;
}

std::vector<int> sum_of(int size, std::size_t count) {
  std::vector<int> sum(count, 0);
  for (Rank rank = 0; rank < size; ++rank) {
    const std::vector<int> values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

TEST_F(StreamWorkers, ReduceDeviceMemory) {
  for (const int size : {1, 2, 3, 5}) {
    for (const std::size_t count : {0U, 1U, 7U, 1009U, 300007U}) {
      Members members(driver(), size);
      std::vector<std::pair<DeviceArray<int>*, DeviceArray<int>*>> arrays;
      members.each([&](Rank rank, Member& member) {
        auto& input = member.device(values_of(rank, count));
        auto& output = member.device(std::vector<int>(count, -1));
        arrays.emplace_back(&input, &output);
        member.launch({reduce_call(input.data(), output.data(), count)});
      });
      members.synchronize();
      for (Rank rank = 0; rank < size; ++rank) {
        EXPECT_EQ(arrays[std::size_t(rank)].first->read(), values_of(rank, count));
        EXPECT_EQ(arrays[std::size_t(rank)].second->read(), sum_of(size, count))
            << size << " ranks, " << count << " elements";
      }
      members.expect_no_failure();
    }
  }
}

TEST_F(StreamWorkers, MixHostAndDeviceMemory) {
  constexpr std::size_t kCount = 1001;
  for (const bool host_input : {false, true}) {
    Members members(driver(), 3);
    std::vector<std::vector<int>> host(3);
    std::vector<DeviceArray<int>*> device;
    members.each([&](Rank rank, Member& member) {
      host[std::size_t(rank)] = host_input ? values_of(rank, kCount) : std::vector<int>(kCount);
      device.push_back(
          &member.device(host_input ? std::vector<int>(kCount) : values_of(rank, kCount)));
      int* const on_host = host[std::size_t(rank)].data();
      int* const on_device = device.back()->data();
      member.launch({reduce_call(host_input ? on_host : on_device, host_input ? on_device : on_host,
                                 kCount)});
    });
    members.synchronize();
    for (Rank rank = 0; rank < 3; ++rank)
      EXPECT_EQ(host_input ? device[std::size_t(rank)]->read() : host[std::size_t(rank)],
                sum_of(3, kCount));
  }
}

TEST_F(StreamWorkers, KeepTheOrderOfAStream) {
  constexpr std::size_t kCount = 100;
  constexpr int kTimes = 12;
  Members members(driver(), 3);
  std::vector<DeviceArray<int>*> arrays;
  members.each([&](Rank rank, Member& member) {
    arrays.push_back(&member.device(std::vector<int>(kCount, rank)));
    for (int i = 0; i < kTimes; ++i)
      member.launch({reduce_call(arrays.back()->data(), arrays.back()->data(), kCount)});
  });
  members.synchronize();
  int expected = 0 + 1 + 2;
  for (int i = 1; i < kTimes; ++i) expected *= 3;
  for (const DeviceArray<int>* array : arrays)
    EXPECT_EQ(array->read(), std::vector<int>(kCount, expected));
}

// Each rank's streams come to the calls in another order; the calls keep theirs.
TEST_F(StreamWorkers, KeepTheOrderOfLaunchesOnManyStreams) {
  constexpr std::size_t kCount = 50;
  Members members(driver(), 3, 3);
  std::vector<Gate> gates(3);
  std::vector<std::vector<DeviceArray<int>*>> arrays(3);
  members.each([&](Rank rank, Member& member) {
    gates[std::size_t(rank)].hold(driver(), member.stream(rank));
    for (int i = 0; i < 9; ++i) {
      auto& array = member.device(std::vector<int>(kCount, rank + i));
      arrays[std::size_t(rank)].push_back(&array);
      member.launch({reduce_call(array.data(), array.data(), kCount)}, i % 3);
    }
  });
  for (Gate& gate : gates) gate.open();
  members.synchronize();
  for (int i = 0; i < 9; ++i)
    for (Rank rank = 0; rank < 3; ++rank)
      EXPECT_EQ(arrays[std::size_t(rank)][std::size_t(i)]->read(),
                std::vector<int>(kCount, 3 + 3 * i));
  members.expect_no_failure();
}

TEST_F(StreamWorkers, GoOnTheDefaultStreamToo) {
  Members members(driver(), 2);
  std::vector<DeviceArray<int>*> arrays;
  members.each([&](Rank rank, Member& member) {
    arrays.push_back(&member.device(values_of(rank, 10)));
    EXPECT_TRUE(
        member.worker()
            .launch(nullptr, {reduce_call(arrays.back()->data(), arrays.back()->data(), 10)})
            .ok());
  });
  members.each([&](Rank rank, Member& member) {
    EXPECT_TRUE(member.worker().drain().ok());
    EXPECT_EQ(arrays[std::size_t(rank)]->read(), sum_of(2, 10));
  });
}

TEST_F(StreamWorkers, GatherAndScatterInPlace) {
  constexpr std::size_t kCount = 33;
  Members members(driver(), 3);
  std::vector<DeviceArray<int>*> gathered;
  std::vector<DeviceArray<int>*> scattered;
  members.each([&](Rank rank, Member& member) {
    std::vector<int> own(3 * kCount, -1);
    std::fill_n(own.begin() + rank * std::ptrdiff_t{kCount}, kCount, rank + 5);
    gathered.push_back(&member.device(own));
    scattered.push_back(&member.device(values_of(rank, 3 * kCount)));
    int* const block = gathered.back()->data() + std::size_t(rank) * kCount;
    int* const own_sum = scattered.back()->data() + std::size_t(rank) * kCount;
    member.launch({{CallKind::all_gather, block, gathered.back()->data(), kCount, DataType::int32,
                    ReduceOp::sum, 0}});
    member.launch({{CallKind::reduce_scatter, scattered.back()->data(), own_sum, kCount,
                    DataType::int32, ReduceOp::sum, 0}});
  });
  members.synchronize();
  const std::vector<int> sum = sum_of(3, 3 * kCount);
  for (Rank rank = 0; rank < 3; ++rank) {
    std::vector<int> all = gathered[std::size_t(rank)]->read();
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], int(i / kCount) + 5);
    std::vector<int> expected = values_of(rank, 3 * kCount);
    for (std::size_t i = std::size_t(rank) * kCount; i < std::size_t(rank + 1) * kCount; ++i)
      expected[i] = sum[i];
    EXPECT_EQ(scattered[std::size_t(rank)]->read(), expected) << "beyond the rank's own block";
  }
  members.expect_no_failure();
}

// The root's buffers are the others' nothing: pointers that nobody may look at.
TEST_F(StreamWorkers, LeaveAloneWhatARankDoesNotTouch) {
  constexpr std::size_t kCount = 9;
  Members members(driver(), 3);
  std::vector<DeviceArray<int>*> arrays;
  members.each([&](Rank rank, Member& member) {
    arrays.push_back(&member.device(values_of(rank, kCount)));
    auto& unused = member.device(std::vector<int>(1, 77));
    int* const data = arrays.back()->data();
    member.launch({{CallKind::broadcast, rank == 1 ? data : unused.data(), data, kCount,
                    DataType::int32, ReduceOp::sum, 1}});
    member.launch({{CallKind::reduce, data, rank == 2 ? data : nullptr, kCount, DataType::int32,
                    ReduceOp::sum, 2}});
  });
  members.synchronize();
  std::vector<int> tripled = values_of(1, kCount);
  for (int& value : tripled) value *= 3;
  EXPECT_EQ(arrays[0]->read(), values_of(1, kCount));
  EXPECT_EQ(arrays[1]->read(), values_of(1, kCount));
  EXPECT_EQ(arrays[2]->read(), tripled);
  members.expect_no_failure();
}

TEST_F(StreamWorkers, MakeTheCallsOfALaunchAsAGroup) {
  constexpr std::size_t kCount = 5000;
  constexpr int kSize = 4;
  Members members(driver(), kSize);
  std::vector<DeviceArray<int>*> received;
  members.each([&](Rank rank, Member& member) {
    auto& sent = member.device(values_of(rank, kCount));
    received.push_back(&member.device(std::vector<int>(kCount)));
    const Rank next = (rank + 1) % kSize;
    const Rank before = (rank + kSize - 1) % kSize;
    member.launch(
        {{CallKind::send, sent.data(), nullptr, kCount, DataType::int32, ReduceOp::sum, next},
         {CallKind::recv, nullptr, received.back()->data(), kCount, DataType::int32, ReduceOp::sum,
          before}});
  });
  members.synchronize();
  for (Rank rank = 0; rank < kSize; ++rank)
    EXPECT_EQ(received[std::size_t(rank)]->read(), values_of((rank + kSize - 1) % kSize, kCount));
}

TEST_F(StreamWorkers, CopyForEveryCallOfALaunch) {
  Members members(driver(), 2);
  std::vector<DeviceArray<int>*> arrays;
  members.each([&](Rank rank, Member& member) {
    std::vector<Call> calls;
    for (int i = 0; i < 3; ++i) {
      arrays.push_back(&member.device(std::vector<int>(50, rank + 10 * i)));
      calls.push_back(reduce_call(arrays.back()->data(), arrays.back()->data(), 50));
    }
    member.launch(calls);
  });
  members.synchronize();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    EXPECT_EQ(arrays[i]->read(), std::vector<int>(50, 1 + 20 * int(i % 3)));
}

TEST_F(StreamWorkers, ReturnBeforeTheStreamComesToIt) {
  Members members(driver(), 2);
  Gate gate;
  gate.hold(driver(), members[0].stream());
  std::vector<DeviceArray<int>*> arrays;
  members.each([&](Rank rank, Member& member) {
    arrays.push_back(&member.device(values_of(rank, 64)));
    member.launch({reduce_call(arrays.back()->data(), arrays.back()->data(), 64)});
  });
  EXPECT_FALSE(*driver().reached(members[0].stream()));
  arrays[0]->write(values_of(7, 64));  // the stream has not come to read it
  gate.open();
  members.synchronize();
  std::vector<int> expected = values_of(7, 64);
  for (std::size_t i = 0; i < 64; ++i) expected[i] += values_of(1, 64)[i];
  EXPECT_EQ(arrays[1]->read(), expected);
}

TEST_F(StreamWorkers, UseTheirMemoryAgain) {
  Members members(driver(), 2);
  auto& first = members[0].device(values_of(0, 3000));
  auto& second = members[1].device(values_of(1, 3000));
  const auto launch_both = [&] {
    members[0].launch({reduce_call(first.data(), first.data(), 3000)});
    members[1].launch({reduce_call(second.data(), second.data(), 3000)});
  };
  launch_both();
  members.synchronize();
  const TuttiStandInCounts before = counts();
  for (int i = 0; i < 300; ++i) {
    launch_both();
    if (i % 10 == 0) members.synchronize();
  }
  members.synchronize();
  EXPECT_EQ(counts().registered_memory, before.registered_memory);
  EXPECT_LE(counts().host_memory, before.host_memory + 2) << "a page of cells each, at most";
}

TEST_F(StreamWorkers, TakeTheDriversMemoryWhereItLocksNoOther) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
  const std::size_t registered = counts().registered_memory;
  stand_in().fail("cuMemHostRegister_v2", 801, 0);
  Members members(driver(), 1);
  EXPECT_EQ(counts().registered_memory, registered);
  auto& array = members[0].device(values_of(4, 10));
  members[0].launch({reduce_call(array.data(), array.data(), 10)});
  members.synchronize();
  EXPECT_EQ(array.read(), values_of(4, 10));
}

TEST_F(StreamWorkers, GiveBackAllThatTheyMade) {
  static_cast<void>(context_of(driver(), 0));
  static_cast<void>(context_of(driver(), 1));
  const TuttiStandInCounts before = counts();
  {
    Members members(driver(), 2);
    members.each([&](Rank rank, Member& member) {
      auto& array = member.device(values_of(rank, 1 << 20));  // more than is locked at first
      member.launch({reduce_call(array.data(), array.data(), 1 << 20)});
    });
    members.synchronize();
  }
  EXPECT_EQ(counts(), before);
}

// ---- Failures ----

// A worker of one rank whose calls do what a test says.
struct Alone {
  Alone(const cuda::Driver& driver, StreamWorker::Run run)
      : scope(*cuda::ContextScope::enter(driver, context_of(driver, 0))),
        stream(*cuda::OwnStream::make(driver)),
        worker(*StreamWorker::make(driver, context_of(driver, 0), 0, 1, std::move(run),
                                   [this](const Status& status) { failures.add(status); })) {}

  cuda::ContextScope scope;
  Failures failures;
  cuda::OwnStream stream;
  std::unique_ptr<StreamWorker> worker;
};

Status no_calls(std::span<const Call>) { return Status(); }

TEST_F(StreamWorkers, LetTheStreamGoOnWhenCallsFail) {
  int calls_made = 0;
  Alone alone(driver(), [&](std::span<const Call>) {
    return ++calls_made == 1 ? Status(StatusCode::peer_lost, "rank 3 hung up", 3) : Status();
  });
  DeviceArray<int> array(driver(), {1, 2, 3});
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(
        alone.worker->launch(alone.stream.get(), {reduce_call(array.data(), array.data(), 3)})
            .ok());
  ASSERT_TRUE(driver().synchronize(alone.stream.get()).ok());
  ASSERT_TRUE(alone.worker->drain().ok());
  EXPECT_EQ(calls_made, 2);
  ASSERT_EQ(alone.failures.all().size(), 1U);
  EXPECT_EQ(alone.failures.all()[0].culprit(), 3);
}

TEST_F(StreamWorkers, WhatIsEnqueuedInPartIsNotMade) {
  for (const char* const function :
       {"cuMemcpyDtoHAsync_v2", "cuLaunchHostFunc", "cuStreamWaitValue32_v2",
        "cuMemcpyHtoDAsync_v2", "cuStreamWriteValue32_v2", "cuEventRecord"}) {
    std::atomic<int> calls_made{0};
    Alone alone(driver(), [&](std::span<const Call>) {
      ++calls_made;
      return Status();
    });
    DeviceArray<int> array(driver(), {1, 2, 3});
    Gate gate;  // so that the stream has not come to anything when the launch fails
    gate.hold(driver(), alone.stream.get());
    stand_in().fail(function, 719, 0);
    const std::vector<Call> calls{reduce_call(array.data(), array.data(), 3)};
    const Status status = alone.worker->launch(alone.stream.get(), calls);
    EXPECT_THAT(status.message(), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")) << function;
    EXPECT_EQ(alone.worker->launch(alone.stream.get(), calls), status) << "later launches, too";
    gate.open();
    EXPECT_TRUE(driver().synchronize(alone.stream.get()).ok());
    EXPECT_TRUE(alone.worker->drain().ok());
    EXPECT_EQ(calls_made.load(), 0) << function;
  }
}

TEST_F(StreamWorkers, RefuseAStreamThatIsNone) {
  Alone alone(driver(), no_calls);
  cuda::Stream gone = nullptr;
  {
    const auto stream = cuda::OwnStream::make(driver());
    gone = stream->get();
  }
  EXPECT_EQ(alone.worker->launch(gone, {}).code(), StatusCode::system_error);
  EXPECT_TRUE(alone.worker->launch(alone.stream.get(), {}).ok()) << "nothing was enqueued";
}

TEST_F(StreamWorkers, EndWhenTheirWorkIsDone) {
  std::atomic<int> calls_made{0};
  auto alone = std::make_unique<Alone>(driver(), [&](std::span<const Call>) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ++calls_made;
    return Status();
  });
  const auto gate = std::make_shared<Gate>();
  gate->hold(driver(), alone->stream.get());
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(alone->worker->launch(alone->stream.get(), {Call()}).ok());
  std::thread opener([gate] {
    while (!gate->reached()) std::this_thread::yield();
    gate->open();
  });
  alone->worker.reset();
  EXPECT_EQ(calls_made.load(), 10);
  opener.join();
}

TEST_F(StreamWorkers, DrainWaitsForAllStreams) {
  std::atomic<int> calls_made{0};
  Alone alone(driver(), [&](std::span<const Call>) {
    ++calls_made;
    return Status();
  });
  const auto other = cuda::OwnStream::make(driver());
  EXPECT_TRUE(alone.worker->drain().ok()) << "with nothing to wait for";
  Gate gate;
  gate.hold(driver(), other->get());
  ASSERT_TRUE(alone.worker->launch(other->get(), {Call()}).ok());
  ASSERT_TRUE(alone.worker->launch(alone.stream.get(), {Call()}).ok());
  auto drained = std::async(std::launch::async, [&] { return alone.worker->drain().ok(); });
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  gate.open();
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(calls_made.load(), 2);
}

TEST_F(StreamWorkers, AbandonedWaitForNoStream) {
  std::atomic<int> calls_made{0};
  Gate gate;
  Alone alone(driver(), [&](std::span<const Call>) {
    ++calls_made;
    return Status();
  });
  DeviceArray<int> array(driver(), {1, 2, 3});
  gate.hold(driver(), alone.stream.get());
  ASSERT_TRUE(
      alone.worker->launch(alone.stream.get(), {reduce_call(array.data(), array.data(), 3)}).ok());
  StreamWorker::abandon(std::move(alone.worker));
  StreamWorker::abandon(nullptr);
  EXPECT_FALSE(*driver().reached(alone.stream.get()));
  gate.open();
  EXPECT_TRUE(driver().synchronize(alone.stream.get()).ok());
  EXPECT_EQ(calls_made.load(), 0);
}

}  // namespace
}  // namespace tutti::testing

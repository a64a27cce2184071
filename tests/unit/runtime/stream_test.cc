// Streams: the order of operations, events across streams, errors that skip what follows, and
// communicators on several streams. Ranks are threads, or streams.
#include "tutti/stream.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

Status failure(const std::string& text) { return Status(StatusCode::system_error, text); }

// Reached by a thread of the test, so that what must come later can be made to.
class Gate {
 public:
  void open() { open_.store(true); }
  Status pass() const {
    while (!open_.load()) std::this_thread::yield();
    return Status();
  }

 private:
  std::atomic<bool> open_{false};
};

TEST(Stream, RunsOperationsInTheirOrderAndReturnsAtOnce) {
  Gate gate;
  std::vector<int> order;
  Stream stream;
  stream.run([&] { return gate.pass(); });
  for (int i = 0; i < 100; ++i)
    stream.run([&order, i] {
      order.push_back(i);
      return Status();
    });
  const Event end = stream.record();
  EXPECT_FALSE(end.query()) << "the gate is shut";
  gate.open();
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_TRUE(end.query());
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Stream, UnusedOneHasNothingToDo) {
  Stream stream;
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_TRUE(stream.record().query());
  EXPECT_TRUE(Event().query());
  EXPECT_TRUE(Event().synchronize().ok());
  stream.wait(Event());
  EXPECT_TRUE(stream.synchronize().ok());
}

TEST(Stream, EventsOrderStreams) {
  std::atomic<int> stage{0};
  Gate gate;
  Stream first;
  Stream second;
  first.run([&] {
    static_cast<void>(gate.pass());
    stage = 1;
    return Status();
  });
  const Event done = first.record();
  second.wait(done);
  second.run([&] { return stage == 1 ? Status() : failure("too early"); });
  const Event after = second.record();
  EXPECT_FALSE(done.query());
  EXPECT_FALSE(after.query());
  gate.open();
  EXPECT_TRUE(after.synchronize().ok());
  EXPECT_TRUE(done.query());
  EXPECT_TRUE(second.synchronize().ok());
}

TEST(Stream, AnEventOutlivesItsStream) {
  Event event;
  {
    Stream stream;
    stream.run([] { return failure("disk full"); });
    event = stream.record();
  }
  EXPECT_TRUE(event.query());
  EXPECT_EQ(event.synchronize().message(), "disk full");
}

TEST(Stream, AnErrorSkipsWhatFollowsUntilItIsAskedFor) {
  int made = 0;
  const auto count = [&made] {
    ++made;
    return Status();
  };
  Stream stream;
  const Event before = stream.record();
  stream.run(count);
  stream.run([] { return failure("first"); });
  stream.run([] { return failure("second"); });
  stream.run(count);
  const Event after = stream.record();
  EXPECT_EQ(after.synchronize().message(), "first");
  EXPECT_TRUE(before.synchronize().ok());
  EXPECT_EQ(stream.synchronize().message(), "first") << "an event does not take it away";
  EXPECT_EQ(made, 1);
  stream.run(count);
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(made, 2);
}

TEST(Stream, AnErrorPassesToThoseWhoWaitForIt) {
  bool made = false;
  Stream first;
  Stream second;
  first.run([] { return failure("torn"); });
  second.wait(first.record());
  second.run([&] {
    made = true;
    return Status();
  });
  const Status status = second.synchronize();
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_NE(status.message().find("torn"), std::string::npos) << status.message();
  EXPECT_FALSE(made);
  EXPECT_EQ(first.synchronize().message(), "torn");
}

TEST(Stream, MovesWithWhatItHasToDo) {
  int made = 0;
  Gate gate;
  Stream stream;
  stream.run([&] { return gate.pass(); });
  stream.run([&] { return ++made, Status(); });
  Stream moved = std::move(stream);
  moved.run([&] { return ++made, Status(); });
  gate.open();
  moved = Stream();  // waits
  EXPECT_EQ(made, 2);
}

TEST(Stream, AnOperationCannotWaitForItsOwnStream) {
  Stream stream;
  stream.run([&] { return stream.synchronize(); });
  EXPECT_EQ(stream.synchronize().code(), StatusCode::invalid_argument);
}

TEST(Stream, NorForWhatItsStreamDoesLater) {
  Gate gate;
  Event later;
  Status found;
  Stream stream;
  stream.run([&] {
    static_cast<void>(gate.pass());
    found = later.synchronize();
    return Status();
  });
  later = stream.record();
  gate.open();
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(found.code(), StatusCode::invalid_argument) << found.to_string();
  EXPECT_TRUE(later.synchronize().ok());
}

TEST(Stream, GoesAwayInOneOfItsOwnOperations) {
  Gate gate;
  bool made = false;
  auto stream = std::make_unique<Stream>();
  stream->run([&] {
    static_cast<void>(gate.pass());
    stream.reset();
    return Status();
  });
  stream->run([&] { return made = true, Status(); });
  const Event end = stream->record();
  gate.open();
  EXPECT_TRUE(end.synchronize().ok());
  EXPECT_TRUE(made) << "what follows is made all the same";
}

TEST(Stream, OperationsEnqueueOthers) {
  std::vector<int> order;
  Stream stream;
  stream.run([&] {
    stream.run([&] { return order.push_back(2), Status(); });
    return order.push_back(1), Status();
  });
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(order, std::vector<int>({1, 2}));
}

TEST(Stream, NothingIsNoOperation) {
  Stream stream;
  stream.run(nullptr);
  EXPECT_EQ(stream.synchronize().code(), StatusCode::invalid_argument);
  Communicator comm;
  stream.run(comm, nullptr);
  EXPECT_EQ(stream.synchronize().code(), StatusCode::invalid_argument);
}

// One thread makes the calls of all ranks, a stream for each.
TEST(Stream, RanksCanBeStreams) {
  constexpr std::size_t kRanks = 3;
  auto comms = Communicator::for_threads(kRanks);
  ASSERT_TRUE(comms.ok());
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(5000, 1.0F));
  std::vector<std::vector<float>> all(kRanks, std::vector<float>(15'000));
  std::vector<std::vector<float>> mine(kRanks, std::vector<float>(5000));
  {
    std::vector<Stream> streams(kRanks);
    for (std::size_t r = 0; r < kRanks; ++r) {
      Communicator& comm = (*comms)[r];
      const std::span<float> values(data[r]);
      streams[r].all_reduce(comm, values, ReduceOp::sum);
      streams[r].broadcast(comm, values, 1);
      streams[r].all_gather(comm, std::span<const float>(values), std::span<float>(all[r]));
      streams[r].reduce_scatter(comm, std::span<const float>(all[r]), std::span<float>(mine[r]),
                                ReduceOp::sum);
      streams[r].all_reduce(comm, std::span<const float>(mine[r]), values, ReduceOp::max);
      streams[r].barrier(comm);
      (*comms)[r] = Communicator();  // the stream has what it needs
    }
  }  // with all of it still to do
  for (const auto& values : data) EXPECT_EQ(values, std::vector<float>(5000, 9.0F));
}

TEST(Stream, KeepsReductionsThatTheCallerDoesNot) {
  auto comms = Communicator::for_threads(2);
  ASSERT_TRUE(comms.ok());
  float values[] = {1, 1};
  Stream streams[2];
  for (std::size_t r = 0; r < 2; ++r)
    streams[r].all_reduce((*comms)[r], std::span(&values[r], 1),
                          Reduction::premul_sum(static_cast<float>(r + 2)));
  for (Stream& stream : streams) EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(values[0], 5.0F);
  EXPECT_EQ(values[1], 5.0F);
}

TEST(Stream, AnAbortEndsWhatItWaitsFor) {
  auto comms = Communicator::for_threads(2);
  ASSERT_TRUE(comms.ok());
  bool made = false;
  Stream stream;
  stream.barrier((*comms)[0]);  // rank 1 does not come
  stream.run([&] { return made = true, Status(); });
  const Event end = stream.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_FALSE(end.query());
  (*comms)[0].abort();
  EXPECT_EQ(end.synchronize().code(), StatusCode::aborted);
  EXPECT_EQ(stream.synchronize().code(), StatusCode::aborted);
  EXPECT_FALSE(made);
  static_cast<void>((*comms)[1].barrier());  // rank 0 had come to that one
  EXPECT_EQ((*comms)[1].barrier().culprit(), 0);
}

// All that was enqueued ends with one error, and the survivors go on with the same streams.
TEST(Stream, ShrinksACommunicatorThatWasRevoked) {
  constexpr std::size_t kRanks = 3;
  auto comms = Communicator::for_threads(kRanks);
  ASSERT_TRUE(comms.ok());
  std::vector<std::int64_t> data(kRanks, 1);
  std::vector<Communicator> smaller(kRanks);
  std::vector<Stream> streams(kRanks);
  for (std::size_t r = 1; r < kRanks; ++r)
    for (int i = 0; i < 3; ++i)
      streams[r].all_reduce((*comms)[r], std::span(&data[r], 1), ReduceOp::sum);
  ASSERT_TRUE((*comms)[0].revoke().ok());  // instead of coming
  for (std::size_t r = 1; r < kRanks; ++r) {
    const Status status = streams[r].synchronize();
    EXPECT_EQ(status.code(), StatusCode::revoked) << status.to_string();
    EXPECT_EQ(status.culprit(), 0);
  }
  (*comms)[2] = Communicator();
  for (std::size_t r = 0; r < 2; ++r) {
    data[r] = 1;
    streams[r].run((*comms)[r], [&smaller, r](Communicator& comm) {
      auto made = comm.shrink();
      if (!made.ok()) return made.status();
      smaller[r] = *std::move(made);
      return Status();
    });
    streams[r].run([&smaller, &data, r] {
      return smaller[r].all_reduce(std::span(&data[r], 1), ReduceOp::sum);
    });
  }
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(streams[r].synchronize().ok());
    EXPECT_EQ(data[r], 2);
  }
}

TEST(Stream, TwoCommunicatorsOnTwoStreamsOfEachRank) {
  constexpr std::size_t kRanks = 3;
  auto first = Communicator::for_threads(kRanks);
  auto second = Communicator::for_threads(kRanks);
  ASSERT_TRUE(first.ok() && second.ok());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      std::vector<std::int64_t> one(1000, 1);
      std::vector<std::int64_t> two(40'000, 1);
      Stream streams[2];
      for (int i = 0; i < 5; ++i) {
        // Ranks use them in different orders: the streams do not wait for each other.
        streams[r % 2].all_reduce((*first)[r], std::span(one), ReduceOp::sum);
        streams[1 - r % 2].all_reduce((*second)[r], std::span(two), ReduceOp::sum);
      }
      // Then the other stream has them, one after the other.
      const Event halfway[] = {streams[0].record(), streams[1].record()};
      streams[0].wait(halfway[1]);
      streams[1].wait(halfway[0]);
      streams[1 - r % 2].all_reduce((*first)[r], std::span(one), ReduceOp::sum);
      streams[r % 2].all_reduce((*second)[r], std::span(two), ReduceOp::sum);
      for (Stream& stream : streams) EXPECT_TRUE(stream.synchronize().ok());
      EXPECT_EQ(one, std::vector<std::int64_t>(1000, 729));
      EXPECT_EQ(two, std::vector<std::int64_t>(40'000, 729));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Stream, ErrorsOfCollectivesNameTheCall) {
  auto comms = Communicator::for_threads(2);
  ASSERT_TRUE(comms.ok());
  float value = 1;
  Stream stream;
  stream.broadcast((*comms)[1], std::span(&value, 1), 7);
  stream.barrier((*comms)[1]);  // skipped: it would wait for ever
  const Status status = stream.synchronize();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("rank 1: broadcast: root 7"), std::string::npos)
      << status.message();
  Communicator none;
  stream.barrier(none);
  EXPECT_EQ(stream.synchronize().code(), StatusCode::invalid_argument);
}

TEST(Stream, TwoStreamsThatUseOneCommunicatorAtOnceAreToldSo) {
  auto comms = Communicator::for_threads(1);
  ASSERT_TRUE(comms.ok());
  Gate inside;
  Gate gate;
  Stream first;
  Stream second;
  first.run((*comms)[0], [&](Communicator& comm) {
    inside.open();
    static_cast<void>(gate.pass());
    return comm.barrier();
  });
  static_cast<void>(inside.pass());
  second.barrier((*comms)[0]);
  const Status status = second.synchronize();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("two streams"), std::string::npos) << status.message();
  gate.open();
  EXPECT_TRUE(first.synchronize().ok());
  second.barrier((*comms)[0]);
  EXPECT_TRUE(second.synchronize().ok()) << "one after the other is fine";
}

TEST(Stream, IsRefusedInAForkedChild) {
  Stream stream;
  stream.run([] { return Status(); });
  ASSERT_TRUE(stream.synchronize().ok());
  Gate gate;
  const Event before = stream.record();
  EXPECT_TRUE(before.synchronize().ok());
  stream.run([&] { return gate.pass(); });
  const Event after = stream.record();
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    stream.run([] { return failure("made"); });
    if (stream.synchronize().code() != StatusCode::invalid_argument) wrong += 1;
    if (stream.record().synchronize().code() != StatusCode::invalid_argument) wrong += 2;
    if (!before.synchronize().ok()) wrong += 4;
    if (!after.query()) wrong += 8;
    if (after.synchronize().code() != StatusCode::invalid_argument) wrong += 16;
    stream = Stream();
    _exit(wrong);
  }
  gate.open();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(stream.synchronize().ok());
}

}  // namespace
}  // namespace tutti

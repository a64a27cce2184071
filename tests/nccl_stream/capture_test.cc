// Calls on streams that are being captured, and graphs that are replayed.
#include <gmock/gmock.h>

#include "workers.hpp"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class CapturedCalls : public OnStandIn {};

using Graphs = std::vector<std::unique_ptr<Graph>>;

TEST_F(CapturedCalls, AreMadeAtEveryReplay) {
  constexpr std::size_t kCount = 1000;
  Members members(driver(), 3);
  Graphs graphs;
  std::vector<DeviceArray<int>*> inputs;
  std::vector<DeviceArray<int>*> outputs;
  members.each([&](Rank, Member& member) {
    inputs.push_back(&member.device(std::vector<int>(kCount)));
    outputs.push_back(&member.device(std::vector<int>(kCount, -1)));
    graphs.push_back(std::make_unique<Graph>(member.stream(), [&] {
      member.launch({reduce_call(inputs.back()->data(), outputs.back()->data(), kCount)});
      member.launch({reduce_call(outputs.back()->data(), outputs.back()->data(), kCount)});
    }));
    ASSERT_EQ(graphs.back()->code(), cuda::kSuccess);
  });
  EXPECT_EQ(outputs[0]->read(), std::vector<int>(kCount, -1)) << "only captured so far";
  for (int replay = 1; replay <= 3; ++replay) {
    members.each([&](Rank rank, Member& member) {
      inputs[std::size_t(rank)]->write(std::vector<int>(kCount, rank + 10 * replay));
      graphs[std::size_t(rank)]->replay(member.stream());
    });
    members.synchronize();
    for (const DeviceArray<int>* output : outputs)
      EXPECT_EQ(output->read(), std::vector<int>(kCount, 3 * (3 + 30 * replay)));
  }
  // Many at once, on streams that do not wait for one another.
  for (int replay = 0; replay < 20; ++replay)
    members.each(
        [&](Rank rank, Member& member) { graphs[std::size_t(rank)]->replay(member.stream()); });
  members.synchronize();
  members.expect_no_failure();
}

TEST_F(CapturedCalls, GoTogetherWithOthers) {
  constexpr std::size_t kCount = 100;
  Members members(driver(), 2);
  Graphs graphs;
  std::vector<DeviceArray<int>*> arrays;
  const auto eager = [&](Rank rank, Member& member) {
    int* const data = arrays[std::size_t(rank)]->data();
    member.launch({reduce_call(data, data, kCount)});
  };
  members.each([&](Rank rank, Member& member) {
    arrays.push_back(&member.device(std::vector<int>(kCount, 1)));
    eager(rank, member);
    graphs.push_back(std::make_unique<Graph>(member.stream(), [&] { eager(rank, member); }));
    ASSERT_EQ(graphs.back()->code(), cuda::kSuccess);
    graphs.back()->replay(member.stream());
    eager(rank, member);
    graphs.back()->replay(member.stream());
  });
  members.synchronize();
  for (const DeviceArray<int>* array : arrays)
    EXPECT_EQ(array->read(), std::vector<int>(kCount, 16));
}

// Within a graph, too, the calls of a communicator keep the order of their launches.
TEST_F(CapturedCalls, OfManyStreamsKeepTheirOrder) {
  constexpr std::size_t kCount = 40;
  Members members(driver(), 2, 2);
  Graphs graphs;
  std::vector<DeviceArray<int>*> arrays;
  members.each([&](Rank rank, Member& member) {
    const auto scope = member.enter();
    const auto fork = cuda::OwnEvent::make(driver());
    const auto join = cuda::OwnEvent::make(driver());
    arrays.push_back(&member.device(std::vector<int>(kCount, rank + 1)));
    int* const data = arrays.back()->data();
    graphs.push_back(std::make_unique<Graph>(member.stream(0), [&] {
      EXPECT_TRUE(driver().record(fork->get(), member.stream(0)).ok());
      EXPECT_TRUE(driver().wait_event(member.stream(1), fork->get()).ok());
      for (int i = 0; i < 4; ++i) member.launch({reduce_call(data, data, kCount)}, i % 2);
      EXPECT_TRUE(driver().record(join->get(), member.stream(1)).ok());
      EXPECT_TRUE(driver().wait_event(member.stream(0), join->get()).ok());
    }));
    ASSERT_EQ(graphs.back()->code(), cuda::kSuccess);
    graphs.back()->replay(member.stream(0));
  });
  members.synchronize();
  for (const DeviceArray<int>* array : arrays)
    EXPECT_EQ(array->read(), std::vector<int>(kCount, 3 * 8));
}

// Captures that are under way at the same time do not know each other.
TEST_F(CapturedCalls, OfTwoCapturesAtOnce) {
  Members members(driver(), 1, 2);
  Member& member = members[0];
  auto& first = member.device(std::vector<int>{1});
  auto& second = member.device(std::vector<int>{2});
  std::unique_ptr<Graph> inner;
  const Graph outer(member.stream(0), [&] {
    member.launch({reduce_call(first.data(), first.data(), 1)}, 0);
    inner = std::make_unique<Graph>(member.stream(1), [&] {
      member.launch({reduce_call(second.data(), second.data(), 1)}, 1);
      member.launch({reduce_call(first.data(), first.data(), 1)}, 0);
      member.launch({reduce_call(second.data(), second.data(), 1)}, 1);
    });
  });
  EXPECT_EQ(outer.code(), cuda::kSuccess);
  EXPECT_EQ(inner->code(), cuda::kSuccess);
  outer.replay(member.stream(0));
  inner->replay(member.stream(1));
  members.synchronize();
  members.expect_no_failure();
}

TEST_F(CapturedCalls, MayNeedMoreMemoryThanThereWas) {
  constexpr std::size_t kCount = 1 << 20;
  Members members(driver(), 1);
  auto& array = members[0].device(std::vector<int>(kCount, 3));
  auto& output = members[0].device(std::vector<int>(kCount));
  const Graph graph(members[0].stream(), [&] {
    members[0].launch({reduce_call(array.data(), output.data(), 10)});
    members[0].launch({reduce_call(array.data(), output.data(), kCount)});
  });
  ASSERT_EQ(graph.code(), cuda::kSuccess);
  graph.replay(members[0].stream());
  members.synchronize();
  EXPECT_EQ(output.read(), array.read());
}

TEST_F(CapturedCalls, AreRefusedWhereTheDriverCannot) {
  Members members(driver(), 1);
  Member& member = members[0];
  auto& array = member.device(std::vector<int>(8, 5));
  const std::vector<Call> calls{reduce_call(array.data(), array.data(), 8)};
  const Graph graph(member.stream(), [&] {
    stand_in().fail("cuStreamWaitValue32_v2", cuda::kCaptureUnsupported, 0);
    const Status status = member.worker().launch(member.stream(), calls);
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(), HasSubstr("calls on a stream that is being captured"));
  });
  member.launch(calls);
  member.synchronize();
  EXPECT_EQ(array.read(), std::vector<int>(8, 5));
}

TEST_F(CapturedCalls, CannotJoinACaptureThatHasFailed) {
  Members members(driver(), 1);
  Member& member = members[0];
  const Graph graph(member.stream(), [&] {
    EXPECT_FALSE(driver().synchronize(member.stream()).ok());
    EXPECT_THAT(member.worker().launch(member.stream(), {Call()}).message(),
                HasSubstr("CAPTURE_INVALIDATED"));
  });
  EXPECT_EQ(graph.code(), cuda::kCaptureInvalidated);
  member.launch({Call()});
  member.synchronize();
}

// Whoever captures, on any thread, does not notice what others begin and end.
TEST_F(CapturedCalls, OfOthersGoOnWhenAWorkerComesAndGoes) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
  const auto stream = cuda::OwnStream::make(driver());
  TuttiStandInCounts before = counts();
  const Graph graph(stream->get(), [&] {
    Members members(driver(), 1);
    members[0].launch({Call()});
  });
  EXPECT_EQ(graph.code(), cuda::kSuccess);
  before.graphs += 2;  // this one, and its instance
  EXPECT_EQ(counts(), before);
}

// A graph into which a launch was captured in part is no good, but its streams come to its end.
TEST_F(CapturedCalls, OfWhichAPartIsMissingAreNotWaitedFor) {
  Members members(driver(), 1);
  Member& member = members[0];
  auto& array = member.device(std::vector<int>(8, 5));
  const Graph graph(member.stream(), [&] {
    stand_in().fail("cuStreamWriteValue32_v2", cuda::kCaptureUnsupported, 0);
    EXPECT_FALSE(
        member.worker().launch(member.stream(), {reduce_call(array.data(), array.data(), 8)}).ok());
  });
  ASSERT_EQ(graph.code(), cuda::kSuccess);
  graph.replay(member.stream());
  member.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  member.end_worker();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "of 10";
}

TEST_F(CapturedCalls, EndWithTheirWorker) {
  static_cast<void>(context_of(driver(), 0));
  static_cast<void>(context_of(driver(), 1));
  const TuttiStandInCounts before = counts();
  {
    Members members(driver(), 2);
    Graphs graphs;
    members.each([&](Rank rank, Member& member) {
      auto& array = member.device(std::vector<int>(100, rank));
      graphs.push_back(std::make_unique<Graph>(
          member.stream(), [&] { member.launch({reduce_call(array.data(), array.data(), 100)}); }));
      graphs.back()->replay(member.stream());
    });
    members.synchronize();
  }
  EXPECT_EQ(counts(), before);
}

}  // namespace
}  // namespace tutti::testing

// pipeline_links_test.cc: messages between pipeline stages, also those that never come.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "training/parallel/pipeline_links.hpp"

namespace tutti::training {
namespace {

using OnRank = std::function<void(Communicator& stages, PipelineLinks& links)>;

void on_stages(int count, const OnRank& f) {
  auto worlds = Communicator::for_threads(count);
  ASSERT_TRUE(worlds.ok()) << worlds.status().to_string();
  std::vector<std::thread> ranks;
  for (Communicator& world : *worlds)
    ranks.emplace_back([&] {
      auto links = PipelineLinks::make(world);
      ASSERT_TRUE(links.ok()) << links.status().to_string();
      f(world, *links);
    });
  for (std::thread& rank : ranks) rank.join();
}

// A message of one float.
Tensor message(Arena& arena, float value) {
  const Tensor made(arena, MemoryKind::communication, DataType::float32, {1});
  made.as<float>()[0] = value;
  return made;
}

TEST(PipelineLinks, GiveWhatIsWantedInAnyOrder) {
  on_stages(2, [](Communicator& stages, PipelineLinks& links) {
    Arena arena;
    Timeline timeline;
    if (stages.rank() == 0) {
      for (int i = 0; i < 3; ++i)
        ASSERT_TRUE(links.to_next->send(message(arena, static_cast<float>(i))).ok());
      ASSERT_TRUE(links.to_next->finish(timeline).ok());
      return;
    }
    const std::vector<MessageKey> order = {{0, 0}, {0, 1}, {1, 0}};
    ASSERT_TRUE(links.from_previous->expect(order, DataType::float32, {1}, arena).ok());
    for (const int wanted : {2, 0, 1}) {
      auto taken = links.from_previous->take(order[static_cast<std::size_t>(wanted)], timeline);
      ASSERT_TRUE(taken.ok()) << taken.status().to_string();
      EXPECT_EQ(taken->as<float>()[0], static_cast<float>(wanted));
    }
  });
}

// Where a step fails, each stage may still expect the other's message. Nobody sends any more, so
// whoever waited for it would wait until the deadline of a collective, ten minutes.
TEST(PipelineLinks, EndAtOnceWithMessagesThatNeverCome) {
  on_stages(2, [](Communicator& stages, PipelineLinks& links) {
    Arena arena;
    Inbox& inbox = stages.rank() == 0 ? *links.from_next : *links.from_previous;
    ASSERT_TRUE(inbox.expect({{0, 0}}, DataType::float32, {1}, arena).ok());
    ASSERT_TRUE(stages.barrier().ok());
    const PipelineLinks ended = std::move(links);
  });
}

TEST(PipelineLinks, EndAtOnceWithMessagesThatNobodyTakes) {
  on_stages(2, [](Communicator& stages, PipelineLinks& links) {
    Arena arena;
    const Tensor large(arena, MemoryKind::communication, DataType::float32, {1 << 22});
    Outbox& outbox = stages.rank() == 0 ? *links.to_next : *links.to_previous;
    ASSERT_TRUE(outbox.send(large).ok());
    ASSERT_TRUE(stages.barrier().ok());
    const PipelineLinks ended = std::move(links);
  });
}

}  // namespace
}  // namespace tutti::training

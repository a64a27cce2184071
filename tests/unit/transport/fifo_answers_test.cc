// fifo_answers_test.cc: the queues between two endpoints: each side says with its own frames how
// many of the other's it has released, so that nobody has to look for that.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "transport/fifo/doorbell.hpp"
#include "transport/fifo/endpoint.hpp"
#include "transport/fifo/queue.hpp"

namespace tutti::transport::fifo {
namespace {

class Queue {
 public:
  Queue() : memory_(layout().bytes() / sizeof(Page)) { initialize(bytes(), layout()); }

  static const Layout& layout() {
    static const Layout made = Layout::of(8192, 32768);
    return made;
  }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }
  Control& control() { return *reinterpret_cast<Control*>(bytes()); }
  Cell& cell(std::size_t index) {
    return *reinterpret_cast<Cell*>(bytes() + layout().cells_offset() + offset_of(index));
  }
  // Whoever looks at the consumer's position from now on finds one that cannot be.
  void poison() { control().released.value = ~std::uint64_t{0}; }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096] = {};
  };
  std::vector<Page> memory_;
};

class Side : public QueueEndpoint {
 public:
  Side(Queue& out, Queue& in, Doorbell& doorbell) : QueueEndpoint(1, doorbell) {
    producer_.attach(out.bytes(), Queue::layout());
    consumer_.attach(in.bytes(), Queue::layout());
  }
  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }

  bool say(std::size_t bytes) {
    const std::vector<std::byte> body(bytes, std::byte{7});
    return send(7, {}, body);
  }
  bool hear(std::size_t bytes) {
    Frame frame;
    if (!peek(frame) || frame.payload.size() != bytes) return false;
    told_ = consumer_.told();
    release();
    return true;
  }
  std::uint64_t told() const { return told_; }  // by what was heard last

 private:
  std::uint64_t told_ = 0;
};

class Answers : public testing::Test {
 protected:
  Doorbell doorbell_{};
  Queue there_;
  Queue back_;
  Side asks_{there_, back_, doorbell_};
  Side answers_{back_, there_, doorbell_};
};

TEST_F(Answers, SpareALookAtThePeersPosition) {
  for (const std::size_t bytes : {8U, 40U, 1000U, 4000U})
    for (int round = 0; round < 1000; ++round) {
      ASSERT_TRUE(asks_.say(bytes)) << round;
      ASSERT_TRUE(answers_.hear(bytes)) << round;
      there_.poison();
      ASSERT_TRUE(answers_.say(bytes)) << round;
      ASSERT_TRUE(asks_.hear(bytes)) << round;
      back_.poison();
    }
  EXPECT_TRUE(asks_.status().ok()) << asks_.status().message();
  EXPECT_TRUE(answers_.status().ok()) << answers_.status().message();
}

// Both say something before they hear the other, as ranks of an exchange do.
TEST_F(Answers, MayCross) {
  for (int round = 0; round < 1000; ++round) {
    ASSERT_TRUE(asks_.say(100) && answers_.say(100)) << round;
    ASSERT_TRUE(asks_.hear(100) && answers_.hear(100)) << round;
    there_.poison();
    back_.poison();
  }
  EXPECT_TRUE(asks_.status().ok()) << asks_.status().message();
}

// After many that were not answered, a few answers tell of all of them.
TEST_F(Answers, TellTheRestWithTheNext) {
  constexpr std::uint64_t kAsked = 3 * kReleasedMax + 5;
  for (std::uint64_t i = 0; i < kAsked; ++i) ASSERT_TRUE(asks_.say(8) && answers_.hear(8));
  there_.poison();
  std::vector<std::uint64_t> told;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(answers_.say(8) && asks_.hear(8));
    told.push_back(asks_.told());
  }
  EXPECT_EQ(told, (std::vector<std::uint64_t>{kReleasedMax, kReleasedMax, kReleasedMax, 5, 0, 0}));
  EXPECT_TRUE(asks_.is_released(kAsked));
  EXPECT_TRUE(asks_.say(8));
  EXPECT_TRUE(asks_.status().ok()) << "nobody had to look";
}

// What is known by a look at the position may be more than an answer says that was sent before.
TEST_F(Answers, MayBeOld) {
  ASSERT_TRUE(asks_.say(8) && answers_.hear(8));
  ASSERT_TRUE(answers_.say(8));
  for (std::uint64_t i = 0; i < 2 * kCellCount; ++i) ASSERT_TRUE(asks_.say(8) && answers_.hear(8));
  ASSERT_TRUE(asks_.hear(8));
  EXPECT_EQ(asks_.told(), 1U);
  for (std::uint64_t i = 0; i < kCellCount; ++i) ASSERT_TRUE(asks_.say(8)) << i;
  EXPECT_FALSE(asks_.say(8)) << "no cell counts as free that holds a frame";
  for (std::uint64_t i = 0; i < kCellCount; ++i) ASSERT_TRUE(answers_.hear(8)) << i;
  EXPECT_TRUE(asks_.status().ok());
}

TEST_F(Answers, TellWhoHadNoRoomThatThereIs) {
  while (asks_.say(8)) {
  }
  EXPECT_FALSE(asks_.news());
  ASSERT_TRUE(answers_.hear(8) && answers_.say(8));
  ASSERT_TRUE(asks_.hear(8));
  EXPECT_TRUE(asks_.news());
  EXPECT_FALSE(asks_.news());
  EXPECT_TRUE(asks_.say(8));
}

TEST_F(Answers, OfFramesThatWereNeverSentAreNonsense) {
  ASSERT_TRUE(asks_.say(8) && answers_.hear(8));
  ASSERT_TRUE(answers_.say(8));
  back_.cell(0).number = numbered(1, 1, 2);
  ASSERT_TRUE(asks_.hear(8));
  EXPECT_EQ(asks_.status().code(), StatusCode::corrupt_data);
  EXPECT_FALSE(asks_.say(8));
  EXPECT_NE(asks_.status().message().find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace tutti::transport::fifo

// fifo_test.cc: the queue on its own, in memory of exactly its size: that it behaves as a bounded
// list, that nonsense from the other side is caught, and that no ring of a doorbell is missed.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "transport/fifo/doorbell.hpp"
#include "transport/fifo/endpoint.hpp"
#include "transport/fifo/queue.hpp"

namespace tutti::transport::fifo {
namespace {

// A queue in memory of exactly its size, so that the address sanitizer sees any step outside.
class QueueTest : public testing::Test {
 protected:
  void make(std::size_t frame_bytes_max, std::size_t queue_bytes) {
    layout_ = Layout::of(frame_bytes_max, queue_bytes);
    memory_.reset(static_cast<std::byte*>(::operator new(layout_.bytes(), kAlignment)));
    std::memset(memory_.get(), 0, layout_.bytes());
    initialize(memory_.get(), layout_);
    producer_.attach(memory_.get(), layout_);
    consumer_.attach(memory_.get(), layout_);
  }

  bool send(std::size_t bytes, std::uint8_t value) {
    const std::span<std::byte> room = producer_.reserve(bytes);
    if (room.data() == nullptr) return false;
    std::memset(room.data(), value, room.size());
    producer_.commit(value, bytes);
    return true;
  }

  bool receive(std::size_t bytes, std::uint8_t value) {
    Frame frame;
    if (!consumer_.peek(frame) || frame.tag != value || frame.payload.size() != bytes) return false;
    for (const std::byte got : frame.payload)
      if (got != std::byte{value}) return false;
    consumer_.release();
    return true;
  }

  Control& control() { return *reinterpret_cast<Control*>(memory_.get()); }
  Cell& cell(std::size_t index) {
    return *reinterpret_cast<Cell*>(memory_.get() + layout_.cells_offset() + offset_of(index));
  }
  // In which cell, or behind how many of them, the frame lies that peek() shows.
  std::size_t cell_of(const Frame& frame) const {
    const auto at =
        frame.payload.data() - memory_.get() - static_cast<std::ptrdiff_t>(layout_.cells_offset());
    std::size_t index = 0;
    while (index < kCellCount && static_cast<std::ptrdiff_t>(offset_of(index + 1)) <= at) ++index;
    return index;
  }

  static constexpr std::align_val_t kAlignment{4096};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  Layout layout_;
  std::unique_ptr<std::byte, Free> memory_;
  Producer producer_;
  Consumer consumer_;
};

TEST_F(QueueTest, LayoutHoldsWhatWasAskedForAndAFrameMore) {
  EXPECT_EQ(Layout::of(65536, 262144).payload_bytes, 262144u + 65536u);
  EXPECT_EQ(Layout::of(65536, 10).payload_bytes, 3 * 65536u);
  EXPECT_EQ(Layout::of(1000, 10).frame_bytes_max, 1024u);
  const Layout layout = Layout::of(1000, 5000);
  EXPECT_GE(layout.cells_offset(), sizeof(Control));
  EXPECT_EQ(offset_of(1), kHeaderBytes + room_of(0));
  EXPECT_EQ(offset_of(kCellCount) - offset_of(kCellCount - 1),
            kHeaderBytes + room_of(kCellCount - 1));
  EXPECT_GE(layout.payloads_offset(), layout.cells_offset() + offset_of(kCellCount));
  EXPECT_GE(layout.bytes(), layout.payloads_offset() + layout.payload_bytes);
}

// Every length of both parts, on both sides of each place where it is done in another way.
TEST_F(QueueTest, FramesOfTwoPartsComeAsOne) {
  make(8192, 8192);
  std::vector<std::byte> all(8192);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  std::vector<std::size_t> bodies;
  for (std::size_t bytes = 0; bytes <= 130; ++bytes) bodies.push_back(bytes);
  for (std::size_t bytes = kWarmBytes - 70; bytes <= kWarmBytes + 2; ++bytes)
    bodies.push_back(bytes);
  for (std::size_t head = 0; head <= kTinyBytes + 2; ++head)
    for (const std::size_t body : bodies) {
      const auto tag = static_cast<std::uint32_t>(head * 10000 + body);
      const std::span<const std::byte> frame = std::span(all).first(head + body);
      const bool fits = head <= kTinyBytes && head + body <= kWarmBytes;
      ASSERT_EQ(producer_.fits_cell(head, body), fits);
      if (!fits) continue;  // conformance tests have those
      const std::vector<std::byte> after(frame.begin() + static_cast<std::ptrdiff_t>(head),
                                         frame.end());  // nothing is read beyond it
      ASSERT_TRUE(producer_.send(tag, frame.first(head), after));
      Frame got;
      ASSERT_TRUE(consumer_.peek(got));
      ASSERT_EQ(got.tag, tag);
      ASSERT_TRUE(std::equal(got.payload.begin(), got.payload.end(), frame.begin(), frame.end()))
          << head << " + " << body;
      consumer_.release();
    }
}

TEST_F(QueueTest, SendingFindsNoRoomInAFullQueue) {
  make(64, 128);
  const std::vector<std::byte> data(40, std::byte{9});
  std::size_t sent = 0;
  while (producer_.send(9, {}, data)) ASSERT_LE(++sent, kCellCount);
  EXPECT_EQ(sent, kCellCount);
  EXPECT_FALSE(producer_.room_appeared());
  ASSERT_TRUE(receive(data.size(), 9));
  EXPECT_TRUE(producer_.room_appeared());
  EXPECT_TRUE(producer_.send(9, {}, data));
  EXPECT_FALSE(producer_.send(9, {}, data));
  producer_.close();
  EXPECT_FALSE(producer_.send(9, {}, data));
}

TEST_F(QueueTest, DescribesOnlyItsOwnLayout) {
  make(1024, 4096);
  EXPECT_TRUE(describes(memory_.get(), layout_));
  EXPECT_FALSE(describes(memory_.get(), Layout::of(2048, 4096)));
  memory_.get()[0] ^= std::byte{1};
  EXPECT_FALSE(describes(memory_.get(), layout_));
}

TEST_F(QueueTest, DetachedSidesDoNothing) {
  EXPECT_EQ(producer_.reserve(8).data(), nullptr);
  Frame frame;
  EXPECT_FALSE(consumer_.peek(frame));
  EXPECT_FALSE(consumer_.news());
  EXPECT_EQ(consumer_.signalled(Signal::produced), 0u);
  make(64, 128);
  ASSERT_TRUE(send(8, 1));
  producer_.close();
  consumer_.close();
  EXPECT_EQ(producer_.reserve(8).data(), nullptr);
  EXPECT_FALSE(consumer_.peek(frame));
}

// Random sizes and bursts against a list of what is under way.
TEST_F(QueueTest, BehavesAsABoundedList) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::minstd_rand random(seed);
    const std::size_t frame_bytes_max = 1 + random() % 4000;
    make(frame_bytes_max, random() % 12000);
    producer_ = Producer();
    consumer_ = Consumer();
    producer_.attach(memory_.get(), layout_);
    consumer_.attach(memory_.get(), layout_);
    std::deque<std::pair<std::size_t, std::uint8_t>> under_way;
    std::uint8_t value = 0;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 2 == 0) {
        const std::size_t bytes = random() % (frame_bytes_max + 1);
        const bool sent = send(bytes, static_cast<std::uint8_t>(value + 1));
        if (sent) under_way.emplace_back(bytes, ++value);
        ASSERT_TRUE(sent || !under_way.empty()) << "an empty queue refused a frame";
      } else if (!under_way.empty()) {
        ASSERT_TRUE(receive(under_way.front().first, under_way.front().second)) << "seed " << seed;
        under_way.pop_front();
      } else {
        Frame frame;
        ASSERT_FALSE(consumer_.peek(frame));
      }
    }
  }
}

// Where both sides keep up, frames stay in a few cells, whatever their length.
TEST_F(QueueTest, FramesStayInWarmCells) {
  make(8192, 16384);
  std::set<std::size_t> cells;
  for (int i = 0; i < 100; ++i) {
    const auto value = static_cast<std::uint8_t>(i);
    const std::size_t bytes = static_cast<std::size_t>(i) * 41;
    Frame frame;
    ASSERT_TRUE(send(bytes, value) && consumer_.peek(frame));
    cells.insert(cell_of(frame));
    ASSERT_TRUE(receive(bytes, value));
  }
  EXPECT_EQ(cells.size(), kWarmCount);
  EXPECT_LT(*cells.rbegin(), kWarmCount);
}

// Which shows in what becomes of the frame that was in the next cell.
TEST_F(QueueTest, LinesAreTakenBackFromAnotherCoreOnly) {
  make(8192, 16384);
  constexpr std::uint8_t kValue = 7;
  const auto around = [&] {
    for (std::size_t i = 0; i < kWarmCount + 1; ++i)
      ASSERT_TRUE(send(2000, kValue) && receive(2000, kValue));
  };
  around();
  EXPECT_EQ(cell(1).tag, 0U);
  producer_.share_core();
  around();
  EXPECT_EQ(cell(2).tag, kValue);
}

// Frames that are not taken go on into other cells, each once, and come back to the warm ones.
TEST_F(QueueTest, WhoIsLateFindsFramesInSpareCells) {
  make(64, 128);
  for (int round = 0; round < 5; ++round) {
    std::uint8_t value = 0;
    while (send(40, value)) ++value;
    ASSERT_EQ(value, kCellCount);
    std::set<std::size_t> cells;
    for (std::uint8_t i = 0; i < value; ++i) {
      Frame frame;
      ASSERT_TRUE(consumer_.peek(frame));
      cells.insert(cell_of(frame));
      ASSERT_TRUE(receive(40, i));
    }
    EXPECT_EQ(cells.size(), kCellCount);
  }
  std::set<std::size_t> cells;
  for (int i = 0; i < 100; ++i) {
    Frame frame;
    ASSERT_TRUE(send(40, 1) && consumer_.peek(frame));
    if (i > 10) cells.insert(cell_of(frame));
    ASSERT_TRUE(receive(40, 1));
  }
  EXPECT_EQ(cells.size(), kWarmCount);
}

// A spare cell holds less than a warm one.
TEST_F(QueueTest, WhatDoesNotFitASpareCellGoesThroughTheRing) {
  constexpr std::size_t kBytes = 3000;
  make(4096, 65536);
  std::uint8_t sent = 0;
  std::uint8_t shown = 0;
  while (sent < 10) ASSERT_TRUE(send(kBytes, sent++));
  for (; shown < 10; ++shown) {
    Frame frame;
    ASSERT_TRUE(consumer_.peek(frame));
    EXPECT_EQ(cell_of(frame) == kCellCount, shown >= kWarmCount) << int{shown};
    ASSERT_TRUE(receive(kBytes, shown));
  }
}

// The number of a frame comes again after 2^21 of them; a cell that was passed by all the time
// would then seem to hold it.
TEST_F(QueueTest, NoCellIsPassedByForLong) {
  make(64, 128);
  const std::vector<std::byte> data(8, std::byte{1});
  for (std::uint64_t frame = 1; frame <= kTourEvery; ++frame) {
    ASSERT_TRUE(producer_.send(1, {}, data));
    ASSERT_TRUE(receive(8, 1));
  }
  for (std::size_t index = 0; index < kCellCount; ++index) {
    bool recent = false;
    for (std::uint64_t back = 0; back <= 2 * kCellCount; ++back)
      recent = recent || holds(cell(index).number, kTourEvery - back);
    EXPECT_TRUE(recent) << "cell " << index;
  }
}

// A payload is never cut in two, so that the ring's end may stay unused; still two must fit.
TEST_F(QueueTest, TwoLargestFramesAlwaysFit) {
  constexpr std::size_t kLargest = 2 * kWarmBytes;
  constexpr std::size_t kSmallest = kWarmBytes + kLineBytes / 2;  // that goes through the ring
  for (std::size_t offset = 0; offset < 3 * kLargest; offset += kSmallest) {
    make(kLargest, 0);
    producer_ = Producer();
    consumer_ = Consumer();
    producer_.attach(memory_.get(), layout_);
    consumer_.attach(memory_.get(), layout_);
    for (std::size_t at = 0; at < offset; at += kSmallest)
      ASSERT_TRUE(send(kSmallest, 1) && receive(kSmallest, 1));
    ASSERT_TRUE(send(kLargest, 2));
    for (std::uint8_t i = 3; i < 10; ++i) {
      ASSERT_TRUE(send(kLargest, i)) << "after " << offset << " bytes";
      ASSERT_TRUE(receive(kLargest, static_cast<std::uint8_t>(i - 1)));
    }
  }
}

// Fresh memory costs page faults: a queue that is emptied each time needs room for one frame only.
TEST_F(QueueTest, WhatIsEmptiedStaysInTheMemoryThatItHasUsed) {
  constexpr std::size_t kBytes = 6000;
  make(8192, 32768);
  const std::byte* payloads = memory_.get() + layout_.payloads_offset();
  const auto used = [&] {
    std::size_t end = layout_.payload_bytes;
    while (end > 0 && payloads[end - 1] == std::byte{}) --end;
    return end;
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(send(kBytes, 1));
    ASSERT_TRUE(receive(kBytes, 1));
  }
  EXPECT_EQ(used(), kBytes);
  // What is not emptied takes what it needs, and loses nothing when it begins anew.
  for (int round = 0; round < 20; ++round) {
    for (std::uint8_t i = 1; i <= 3; ++i) ASSERT_TRUE(send(kBytes, i));
    for (std::uint8_t i = 1; i <= 3; ++i) ASSERT_TRUE(receive(kBytes, i));
  }
  EXPECT_LE(used(), 3 * 6016U);
}

// Between two cores the memory that was used last is the dearest: all of it is gone through, but
// not for a few frames' sake.
TEST_F(QueueTest, WhatIsReusedLateGoesAllTheWayRound) {
  constexpr std::size_t kBytes = 6000;
  make(8192, 120'000);
  producer_.attach(memory_.get(), layout_, Reuse::late);
  std::set<const void*> places;
  const auto go_on = [&](int frames) {
    for (int i = 0; i < frames; ++i) {
      const auto value = static_cast<std::uint8_t>(i);
      Frame frame;
      ASSERT_TRUE(send(kBytes, value) && consumer_.peek(frame));
      places.insert(frame.payload.data());
      ASSERT_TRUE(receive(kBytes, value));
    }
  };
  go_on(3);
  EXPECT_EQ(places.size(), 1U);
  go_on(200);
  EXPECT_EQ(places.size(), layout_.payload_bytes / 6016);
  places.clear();
  go_on(static_cast<int>(layout_.payload_bytes / 6016));
  EXPECT_EQ(places.size(), layout_.payload_bytes / 6016)
      << "no place comes again before all others";
}

TEST_F(QueueTest, AReservationThatIsGivenUpLeavesNoTrace) {
  make(4096, 8192);
  for (std::uint8_t i = 1; i < 100; ++i) {
    ASSERT_EQ(producer_.reserve(i % 2 == 0 ? 4096 : 100).size(), i % 2 == 0 ? 4096u : 100u);
    ASSERT_TRUE(send(20 * i, i));
    ASSERT_TRUE(receive(20 * i, i));
  }
}

TEST_F(QueueTest, SaysOnceThatRoomAppeared) {
  make(64, 128);
  while (send(8, 1)) {
  }
  EXPECT_FALSE(producer_.room_appeared());
  ASSERT_TRUE(receive(8, 1));
  EXPECT_TRUE(producer_.room_appeared());
  EXPECT_FALSE(producer_.room_appeared());
  EXPECT_TRUE(send(8, 1));
}

TEST_F(QueueTest, TellsNewsOnce) {
  make(64, 128);
  EXPECT_FALSE(consumer_.news());
  ASSERT_TRUE(send(8, 1));
  EXPECT_TRUE(consumer_.news());
  EXPECT_FALSE(consumer_.news());
  ASSERT_TRUE(send(8, 2));
  EXPECT_FALSE(consumer_.news()) << "the first frame hides the second";
  ASSERT_TRUE(receive(8, 1));
  EXPECT_TRUE(consumer_.news());
  ASSERT_TRUE(receive(8, 2));
  EXPECT_FALSE(consumer_.news());
  producer_.signal(Signal::granted, 5);
  EXPECT_TRUE(consumer_.news());
  EXPECT_FALSE(consumer_.news());
  producer_.signal(Signal::granted, 6);
  EXPECT_EQ(consumer_.signalled(Signal::granted), 6u);
  EXPECT_FALSE(consumer_.news()) << "it was shown already";
}

TEST_F(QueueTest, NonsenseInACellIsReportedAndNotRead) {
  struct Damage {
    std::uint32_t bytes;
    std::uint32_t place;
  };
  for (const Damage damage :
       {Damage{kWarmBytes + 1, kInCell}, Damage{0xffffffff, kInCell}, Damage{0xffffffff, kBehind},
        Damage{kWarmBytes - kTinyBytes + 1, kBehind}, Damage{8193, 0}, Damage{64, 384},
        Damage{8192, 257}, Damage{1, 0xfffffffc}, Damage{1, kOnLoan}, Damage{1, kInOutbox + 4},
        Damage{257, kInOutbox}, Damage{65, kInOutbox + 3}, Damage{0xffffffff, kInOutbox}}) {
    make(8192, 16384);
    producer_ = Producer();
    consumer_ = Consumer();
    producer_.attach(memory_.get(), layout_);
    consumer_.attach(memory_.get(), layout_);
    std::vector<std::byte> outbox(256);
    consumer_.attach_outbox(outbox.data(), outbox.size());
    ASSERT_TRUE(send(6000, 1));
    cell(0).bytes = damage.bytes;
    cell(0).place = damage.place;
    Frame frame;
    EXPECT_FALSE(consumer_.peek(frame)) << damage.bytes << " at " << damage.place;
    EXPECT_TRUE(consumer_.corrupt());
  }
}

TEST_F(QueueTest, AFrameInAnOutboxIsShownOnceTheOutboxIs) {
  make(2048, 4096);
  producer_.announce({.region = 7, .offset = 4711});
  ASSERT_TRUE(producer_.may_post());
  producer_.post(9, 100, 2);
  ASSERT_EQ(producer_.sent(), 1u);
  Frame frame;
  EXPECT_FALSE(consumer_.peek(frame));
  EXPECT_FALSE(consumer_.corrupt());
  ASSERT_TRUE(consumer_.wants_outbox());
  EXPECT_EQ(consumer_.outbox(), (MemoryReference{.region = 7, .offset = 4711}));
  std::vector<std::byte> outbox(256);
  consumer_.attach_outbox(outbox.data(), outbox.size());
  ASSERT_TRUE(consumer_.peek(frame));
  EXPECT_EQ(frame.tag, 9u);
  EXPECT_EQ(frame.payload.data(), outbox.data() + 2 * kLineBytes);
  EXPECT_EQ(frame.payload.size(), 100u);
  EXPECT_FALSE(producer_.is_released(1));
  consumer_.release();
  EXPECT_TRUE(producer_.is_released(1));
}

// A frame in a place that the consumer has lent, which is shown as often as it is looked at, and
// once for each loan.
TEST_F(QueueTest, AFrameOnLoanLiesWhereItWasLent) {
  make(8192, 16384);
  std::vector<std::byte> place(8192);
  for (int loan = 0; loan < 3; ++loan) {
    EXPECT_FALSE(consumer_.lends());
    consumer_.lend(place);
    EXPECT_TRUE(consumer_.lends() && consumer_.has_lent(place.data()));
    const auto room = producer_.reserve_on_loan(std::span(place).first(7000));
    ASSERT_EQ(room.data(), place.data());
    EXPECT_TRUE(producer_.is_on_loan());
    producer_.commit(5, 7000);
    ASSERT_TRUE(send(6000, 1)) << "others follow in the ring";
    EXPECT_FALSE(producer_.is_on_loan());
    Frame frame;
    for (int look = 0; look < 2; ++look) {
      ASSERT_TRUE(consumer_.peek(frame));
      EXPECT_EQ(frame.payload.data(), place.data());
      EXPECT_EQ(frame.payload.size(), 7000u);
      EXPECT_EQ(consumer_.shown_on_loan().data(), place.data());
      EXPECT_FALSE(consumer_.lends());
      EXPECT_TRUE(consumer_.has_lent(place.data())) << "until the frame is released";
    }
    consumer_.release();
    EXPECT_FALSE(consumer_.has_lent(place.data()));
    EXPECT_TRUE(receive(6000, 1));
    EXPECT_TRUE(consumer_.shown_on_loan().empty());
  }
}

// What the peer lends is taken once, and only where it lies in what the peer has shown.
TEST_F(QueueTest, ALoanIsTakenOnce) {
  make(8192, 16384);
  std::vector<std::byte> outbox(3 * 8192);
  EXPECT_EQ(consumer_.borrow(5000), nullptr);
  producer_.lend(0);
  EXPECT_EQ(consumer_.borrow(5000), nullptr) << "it was not shown yet";
  consumer_.attach_outbox(outbox.data(), outbox.size());
  EXPECT_EQ(consumer_.borrow(5000), outbox.data());
  EXPECT_EQ(consumer_.borrow(8192), outbox.data()) << "it was not used";
  EXPECT_EQ(consumer_.borrow(8193), nullptr);
  consumer_.use_loan();
  EXPECT_EQ(consumer_.borrow(5000), nullptr);
  producer_.lend(256);
  EXPECT_EQ(consumer_.borrow(8192), outbox.data() + 256 * kLineBytes);
  consumer_.use_loan();
  EXPECT_FALSE(consumer_.corrupt());
  producer_.lend(257);
  EXPECT_EQ(consumer_.borrow(64), nullptr) << "no place for the longest frame";
  EXPECT_TRUE(consumer_.corrupt());
}

TEST_F(QueueTest, AnImpossiblePositionIsReported) {
  make(64, 128);
  while (send(8, 1)) {
  }
  control().released.value = kCellCount + 1;  // more than was sent
  EXPECT_FALSE(send(8, 1));
  EXPECT_TRUE(producer_.corrupt());
}

TEST_F(QueueTest, AnEndpointTurnsNonsenseIntoAStatus) {
  class TestEndpoint : public QueueEndpoint {
   public:
    TestEndpoint(std::byte* memory, const Layout& layout, Doorbell& doorbell)
        : QueueEndpoint(3, doorbell) {
      consumer_.attach(memory, layout);
    }
    MemoryReference export_memory(const void*, std::size_t) override { return {}; }
    std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  };
  make(64, 128);
  Doorbell doorbell{};
  TestEndpoint endpoint(memory_.get(), layout_, doorbell);
  ASSERT_TRUE(send(8, 1));
  cell(0).bytes = 1000;
  Frame frame;
  EXPECT_FALSE(endpoint.peek(frame));
  EXPECT_EQ(endpoint.status().code(), StatusCode::corrupt_data);
  EXPECT_NE(endpoint.status().message().find("rank 3"), std::string::npos);
  cell(0).bytes = 8;
  EXPECT_FALSE(endpoint.peek(frame)) << "a failure is final";
  // An outbox that cannot be found is nonsense, too.
  make(64, 128);
  producer_ = Producer();
  producer_.attach(memory_.get(), layout_);
  TestEndpoint other(memory_.get(), layout_, doorbell);
  producer_.post(1, 8, 0);
  EXPECT_FALSE(other.peek(frame));
  EXPECT_EQ(other.status().code(), StatusCode::corrupt_data);
}

TEST(DoorbellTest, RingingAnAwakeRankDoesNothing) {
  Doorbell doorbell{};
  ring(doorbell);
  EXPECT_EQ(doorbell.rings, 0u);
}

TEST(DoorbellTest, WhatIsThereAlreadyEndsTheSleep) {
  Doorbell doorbell{};
  Sleeper sleeper(doorbell);
  int looks = 0;
  std::uint32_t told = 0;  // whether peers knew of the sleep when it looked
  sleeper.sleep(1'000'000'000, [&] {
    told = doorbell.sleeping;
    return ++looks == 1;
  });
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(doorbell.sleeping, 0u);
}

TEST(DoorbellTest, EveryRingIsSeen) {
  Doorbell doorbell{};
  std::atomic<int> turn = 0;
  constexpr int kTurns = 200;
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      while (turn.load() != 2 * i) std::this_thread::yield();
      turn.store(2 * i + 1);
      ring(doorbell);
    }
  });
  Sleeper sleeper(doorbell);
  for (int i = 0; i < kTurns; ++i) {
    while (turn.load() != 2 * i + 1)
      sleeper.sleep(1'000'000, [&] { return turn.load() == 2 * i + 1; });
    turn.store(2 * i + 2);
  }
  other.join();
  EXPECT_EQ(turn, 2 * kTurns);
}

}  // namespace
}  // namespace tutti::transport::fifo

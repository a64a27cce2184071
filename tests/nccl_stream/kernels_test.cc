// Calls in device memory that kernels make: which ones, in which order with those that are staged,
// and how they end. On the stand-in for CUDA, which runs kernels on threads of the processor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "device.hpp"
#include "nccl/comm.hpp"
#include "runtime/gpu/host/cuda_device.hpp"

namespace tutti::testing {
namespace {

using nccl::Call;
using nccl::CallKind;
using nccl::Comm;
using nccl::DeviceGroup;
using runtime::gpu::DeviceStock;
using runtime::gpu::GpuOptions;
using ::testing::HasSubstr;

constexpr int kLaunchFailed = 719;
constexpr std::array<std::byte, 4> kSomeImage{std::byte{1}};  // which the stand-in does not look at

// The kernels of the library are not in all builds.
DeviceStock& stock() {
  static auto* const made = new DeviceStock(
      [](int ordinal) { return runtime::gpu::make_cuda_device(ordinal, kSomeImage); });
  return *made;
}

GpuOptions options_with(std::chrono::milliseconds timeout) {
  GpuOptions options;
  options.channels = 2;
  options.slot_bytes = 4096;  // so that small calls have several slices
  options.channel_bytes = 4096;
  options.timeout = timeout;
  return options;
}

// A communicator's rank, its stream and its memory.
struct Seat {
  std::unique_ptr<Comm> comm;
  cuda::Context context = nullptr;
  std::unique_ptr<cuda::OwnStream> stream;
  std::unique_ptr<DeviceArray<int>> input;
  std::unique_ptr<DeviceArray<int>> output;
};

// All ranks of one, spoken for by one thread.
class Seats {
 public:
  Seats(const cuda::Driver& driver, const std::vector<int>& ordinals,
        std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : driver_(driver) {
    auto group = DeviceGroup::make(ordinals, options_with(timeout), stock());
    EXPECT_TRUE(group.ok()) << group.status().to_string();
    CommunicatorOptions options;
    options.timeout = std::chrono::seconds(60);
    const int size = static_cast<int>(ordinals.size());
    auto communicators = *Communicator::for_threads(size, options);
    for (Rank rank = 0; rank < size; ++rank) {
      const int ordinal = ordinals[static_cast<std::size_t>(rank)];
      Seat& seat = seats_.emplace_back();
      seat.context = context_of(driver, ordinal);
      seat.comm =
          std::make_unique<Comm>(nccl::CommIdentity{rank, size, {ordinal, seat.context}, true, {}});
      auto maker = [&]() -> Result<Communicator> {
        return std::move(communicators[static_cast<std::size_t>(rank)]);
      };
      EXPECT_TRUE(seat.comm->make(maker, group.ok() ? *group : nullptr).ok());
      const auto scope = cuda::ContextScope::enter(driver, seat.context);
      seat.stream = std::make_unique<cuda::OwnStream>(*cuda::OwnStream::make(driver));
    }
  }
  ~Seats() {
    for (Seat& seat : seats_)
      if (seat.comm) static_cast<void>(seat.comm->close());
  }

  // The communicators go.
  void leave() {
    for (Seat& seat : seats_) seat.comm.reset();
  }

  int size() const { return static_cast<int>(seats_.size()); }
  Seat& operator[](Rank rank) { return seats_[static_cast<std::size_t>(rank)]; }

  // Memory of so many elements; of the input, element i of rank r is 1000 * r + i.
  void lay_out(std::size_t inputs, std::size_t outputs) {
    for (Rank rank = 0; rank < size(); ++rank) {
      Seat& seat = (*this)[rank];
      const auto scope = cuda::ContextScope::enter(driver_, seat.context);
      std::vector<int> values(inputs);
      std::iota(values.begin(), values.end(), 1000 * rank);
      seat.input = std::make_unique<DeviceArray<int>>(driver_, values);
      seat.output = std::make_unique<DeviceArray<int>>(driver_, std::vector<int>(outputs, -1));
    }
  }

  Result<bool> enqueue(Rank rank, const std::vector<Call>& calls) {
    Seat& seat = (*this)[rank];
    const auto scope = cuda::ContextScope::enter(driver_, seat.context);
    return seat.comm->device_side().enqueue(*seat.comm, seat.stream->get(), calls);
  }
  // The same call by all, which make one of it for each rank.
  template <typename MakeCall>
  void enqueue_all(MakeCall make) {
    for (Rank rank = 0; rank < size(); ++rank) {
      const auto enqueued = enqueue(rank, {make((*this)[rank], rank)});
      ASSERT_TRUE(enqueued.ok()) << enqueued.status().to_string();
      EXPECT_TRUE(*enqueued);
    }
  }
  void synchronize() {
    for (Seat& seat : seats_) EXPECT_TRUE(driver_.synchronize(seat.stream->get()).ok());
  }
  void expect_no_failure() {
    for (Seat& seat : seats_)
      EXPECT_TRUE(seat.comm->failure().ok()) << seat.comm->failure().to_string();
  }

 private:
  const cuda::Driver& driver_;
  std::vector<Seat> seats_;
};

class NcclKernels : public OnStandIn {
 protected:
  // Whether a kernel is what the next call of this rank becomes. The call is not made.
  static bool launches_kernel(Seats& seats, Rank rank, const Call& call) {
    stand_in().fail("cuLaunchKernel", kLaunchFailed, 0);
    const auto enqueued = seats.enqueue(rank, {call});
    return !enqueued.ok() &&
           enqueued.status().message().find("cuLaunchKernel") != std::string::npos;
  }
};

Call reduce(CallKind kind, const Seat& seat, std::size_t count, Rank root = 0) {
  return {kind, seat.input->data(), seat.output->data(), count, DataType::int32, ReduceOp::sum,
          root};
}

int sum_at(int ranks, std::size_t i) {
  return 1000 * ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i);
}

std::vector<int> sums(int ranks, std::size_t begin, std::size_t count) {
  std::vector<int> expected;
  for (std::size_t i = 0; i < count; ++i) expected.push_back(sum_at(ranks, begin + i));
  return expected;
}

std::vector<int> part_of(Rank rank, std::size_t begin, std::size_t count) {
  std::vector<int> expected(count);
  std::iota(expected.begin(), expected.end(), 1000 * rank + static_cast<int>(begin));
  return expected;
}

// What rank `rank` must have; empty: it receives nothing.
std::vector<int> expected_of(CallKind kind, Rank rank, int ranks, std::size_t count, Rank root) {
  const auto mine = static_cast<std::size_t>(rank) * count;
  std::vector<int> all;
  switch (kind) {
    case CallKind::all_reduce:
      return sums(ranks, 0, count);
    case CallKind::reduce:
      return rank == root ? sums(ranks, 0, count) : all;
    case CallKind::reduce_scatter:
      return sums(ranks, mine, count);
    case CallKind::broadcast:
      return part_of(root, 0, count);
    case CallKind::scatter:
      return part_of(root, mine, count);
    case CallKind::gather:
      if (rank != root) return all;
      [[fallthrough]];
    case CallKind::all_gather:
      for (Rank from = 0; from < ranks; ++from)
        for (const int value : part_of(from, 0, count)) all.push_back(value);
      return all;
    case CallKind::all_to_all:
      for (Rank from = 0; from < ranks; ++from)
        for (const int value : part_of(from, mine, count)) all.push_back(value);
      return all;
    case CallKind::send:
    case CallKind::recv:
      break;
  }
  return all;
}

void expect_output(Seat& seat, const std::vector<int>& expected, const std::string& what) {
  std::vector<int> values = seat.output->read();
  values.resize(expected.size());
  EXPECT_EQ(values, expected) << what;
}

constexpr CallKind kCollectives[] = {
    CallKind::all_reduce,     CallKind::broadcast,  CallKind::reduce, CallKind::all_gather,
    CallKind::reduce_scatter, CallKind::all_to_all, CallKind::gather, CallKind::scatter};

TEST_F(NcclKernels, MakeAllCollectives) {
  for (const std::vector<int>& ordinals :
       {std::vector{0}, std::vector{0, 0}, std::vector{0, 1, 0}, std::vector{0, 1, 2, 3, 0}}) {
    Seats seats(driver(), ordinals);
    const int ranks = seats.size();
    for (const std::size_t count : {0U, 1U, 7U, 9001U}) {
      const std::size_t all = count * static_cast<std::size_t>(ranks);
      for (const CallKind kind : kCollectives) {
        const Rank root = ranks - 1;
        seats.lay_out(all, all);
        seats.enqueue_all([&](const Seat& seat, Rank) { return reduce(kind, seat, count, root); });
        seats.synchronize();
        seats.expect_no_failure();
        for (Rank rank = 0; rank < ranks; ++rank)
          expect_output(seats[rank], expected_of(kind, rank, ranks, count, root),
                        std::string(to_string(kind)) + " by rank " + std::to_string(rank));
      }
    }
  }
}

TEST_F(NcclKernels, LeaveOtherCallsToStaging) {
  Seats seats(driver(), {0});
  seats.lay_out(16, 16);
  for (const CallKind kind : kCollectives)
    EXPECT_TRUE(launches_kernel(seats, 0, reduce(kind, seats[0], 8))) << to_string(kind);
  std::vector<int> memory(8);
  Call hosts = reduce(CallKind::all_reduce, seats[0], 8);
  hosts.input = memory.data();
  EXPECT_FALSE(launches_kernel(seats, 0, hosts));
  stand_in().fail("cuLaunchKernel", 0, 0);
  seats.synchronize();
}

// Ranks that group the same calls in different ways must not wait for one another.
TEST_F(NcclKernels, KeepTheirPlaceAmongStagedCollectives) {
  Seats seats(driver(), {0, 1});
  seats.lay_out(64, 64);
  const std::vector<std::vector<int>> in_host{part_of(0, 8, 8), part_of(1, 8, 8)};
  const auto calls_of = [&](Rank rank) {
    const Call sum = reduce(CallKind::all_reduce, seats[rank], 8);
    Call staged = sum;
    staged.input = in_host[static_cast<std::size_t>(rank)].data();
    staged.output = seats[rank].output->data() + 8;
    Call transfer{CallKind::recv, nullptr, seats[0].output->data() + 16, 8, DataType::int32,
                  ReduceOp::sum,  1};
    if (rank == 1)
      transfer = {CallKind::send,
                  seats[1].input->data() + 16,
                  nullptr,
                  8,
                  DataType::int32,
                  ReduceOp::sum,
                  0};
    Call gathered = reduce(CallKind::all_gather, seats[rank], 8);
    gathered.output = seats[rank].output->data() + 24;
    return std::vector<Call>{staged, sum, transfer, gathered};
  };
  ASSERT_TRUE(seats.enqueue(0, calls_of(0)).ok());
  const auto second = calls_of(1);
  for (const std::size_t i : {0U, 1U, 3U, 2U}) ASSERT_TRUE(seats.enqueue(1, {second[i]}).ok());
  seats.synchronize();
  seats.expect_no_failure();
  for (Rank rank = 0; rank < 2; ++rank) {
    std::vector<int> expected = sums(2, 0, 16);
    for (const int value : part_of(1, 16, 8)) expected.push_back(rank == 0 ? value : -1);
    for (Rank from = 0; from < 2; ++from)
      for (const int value : part_of(from, 0, 8)) expected.push_back(value);
    expect_output(seats[rank], expected, "rank " + std::to_string(rank));
  }
}

// Ranks have factors of their own: in the call, in memory of the device, of another one, or of the
// host. The stand-in would not let a kernel look at the host's.
TEST_F(NcclKernels, ScaleWhatTheySum) {
  const std::vector<int> ordinals{0, 1, 0, 2};
  Seats seats(driver(), ordinals);
  constexpr std::size_t kCount = 2500;
  std::vector<int> factors{2, 30, 400, 5000};
  std::vector<std::unique_ptr<DeviceArray<int>>> in_device;
  for (const int ordinal : {1, 3}) {
    const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), ordinal));
    in_device.push_back(std::make_unique<DeviceArray<int>>(
        driver(), std::vector<int>{factors[in_device.empty() ? 1 : 2]}));
  }
  for (const CallKind kind : {CallKind::all_reduce, CallKind::reduce, CallKind::reduce_scatter}) {
    seats.lay_out(4 * kCount, 4 * kCount);
    const auto scaled = [&](const Seat& seat, Rank rank) {
      Call call = reduce(kind, seat, kCount, 3);
      const auto r = static_cast<std::size_t>(rank);
      call.op = Reduction::premul_sum(rank == 0 ? factors[0] : 0);
      if (rank == 1 || rank == 2) call.factor_at = in_device[r - 1]->data();
      if (rank == 3) call.factor_at = &factors[3];
      return call;
    };
    EXPECT_TRUE(launches_kernel(seats, 0, scaled(seats[0], 0)));
    seats.enqueue_all(scaled);
    seats.synchronize();
    seats.expect_no_failure();
    for (Rank rank = 0; rank < 4; ++rank) {
      if (kind == CallKind::reduce && rank != 3) continue;
      const std::size_t begin =
          kind == CallKind::reduce_scatter ? static_cast<std::size_t>(rank) * kCount : 0;
      std::vector<int> expected(kCount, 0);
      for (Rank from = 0; from < 4; ++from)
        for (std::size_t i = 0; i < kCount; ++i)
          expected[i] +=
              factors[static_cast<std::size_t>(from)] * (1000 * from + static_cast<int>(begin + i));
      expect_output(seats[rank], expected, std::string(to_string(kind)));
      // What the caller gave is as it was.
      EXPECT_EQ(seats[rank].input->read(), part_of(rank, 0, 4 * kCount));
    }
  }
}

TEST_F(NcclKernels, ExchangeInPlace) {
  Seats seats(driver(), {0, 1, 1});
  seats.lay_out(3 * 500, 1);
  seats.enqueue_all([](const Seat& seat, Rank) {
    Call call = reduce(CallKind::all_to_all, seat, 500);
    call.output = seat.input->data();
    return call;
  });
  seats.synchronize();
  seats.expect_no_failure();
  for (Rank rank = 0; rank < 3; ++rank)
    EXPECT_EQ(seats[rank].input->read(), expected_of(CallKind::all_to_all, rank, 3, 500, 0));
}

TEST_F(NcclKernels, AreReplayedByGraphs) {
  Seats seats(driver(), {0, 0});
  seats.lay_out(300, 300);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (Rank rank = 0; rank < 2; ++rank)
    graphs.push_back(std::make_unique<Graph>(seats[rank].stream->get(), [&] {
      EXPECT_TRUE(seats.enqueue(rank, {reduce(CallKind::all_reduce, seats[rank], 300)}).ok());
    }));
  for (int more = 0; more < 3; ++more) {
    for (Rank rank = 0; rank < 2; ++rank) {
      std::vector<int> values = part_of(rank, 0, 300);
      for (int& value : values) value += more;
      seats[rank].input->write(values);
    }
    for (Rank rank = 0; rank < 2; ++rank)
      graphs[static_cast<std::size_t>(rank)]->replay(seats[rank].stream->get());
    seats.synchronize();
    seats.expect_no_failure();
    std::vector<int> expected = sums(2, 0, 300);
    for (int& value : expected) value += 2 * more;
    for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(seats[rank].output->read(), expected);
  }
}

TEST_F(NcclKernels, RefuseTheMemoryOfAnotherDevice) {
  Seats seats(driver(), {0, 1});
  seats.lay_out(8, 8);
  Call call = reduce(CallKind::all_reduce, seats[0], 8);
  call.output = seats[1].output->data();
  const auto refused = seats.enqueue(0, {call});
  EXPECT_EQ(refused.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(refused.status().message(), HasSubstr("is device 1's, and the rank is on device 0"));
}

// Where each would wait for the other one's kernel for ever.
TEST_F(NcclKernels, RefuseTwoRanksOnOneDefaultStream) {
  Seats seats(driver(), {0, 0});
  seats.lay_out(8, 8);
  const auto enqueue = [&](Rank rank) {
    const auto scope = cuda::ContextScope::enter(driver(), seats[rank].context);
    return seats[rank].comm->device_side().enqueue(*seats[rank].comm, nullptr,
                                                   {reduce(CallKind::all_reduce, seats[rank], 8)});
  };
  ASSERT_TRUE(enqueue(0).ok());
  const auto refused = enqueue(1);
  EXPECT_EQ(refused.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(refused.status().message(), HasSubstr("a stream of its own"));
  ASSERT_TRUE(seats.enqueue(1, {reduce(CallKind::all_reduce, seats[1], 8)}).ok());
  seats.synchronize();
  const auto scope = cuda::ContextScope::enter(driver(), seats[0].context);
  EXPECT_TRUE(driver().synchronize(cuda::Stream{nullptr}).ok());
  expect_output(seats[0], sums(2, 0, 8), "on the default stream");
}

// A call in host memory comes after those that were enqueued before it.
TEST_F(NcclKernels, AreWaitedForByCallsInHostMemory) {
  Seats seats(driver(), {0});
  seats.lay_out(8, 8);
  Gate gate;
  gate.hold(driver(), seats[0].stream->get());
  ASSERT_TRUE(seats.enqueue(0, {reduce(CallKind::all_reduce, seats[0], 8)}).ok());
  std::vector<int> memory(1);
  std::atomic<bool> over{false};
  std::thread caller([&] {
    const Call call{
        CallKind::all_reduce, memory.data(), memory.data(), 1, DataType::int32, ReduceOp::sum, 0};
    Comm& comm = *seats[0].comm;
    EXPECT_FALSE(*comm.device_side().enqueue(comm, nullptr, {call}));
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(over);
  gate.open();
  caller.join();
  expect_output(seats[0], part_of(0, 0, 8), "before the host's");
}

TEST_F(NcclKernels, ARankThatNeverComesIsNamed) {
  Seats seats(driver(), {0, 1, 2}, std::chrono::milliseconds(200));
  seats.lay_out(8, 8);
  for (const Rank rank : {0, 2})
    ASSERT_TRUE(seats.enqueue(rank, {reduce(CallKind::all_reduce, seats[rank], 8)}).ok());
  seats.synchronize();
  for (const Rank rank : {0, 2}) {
    const Status why = seats[rank].comm->failure();
    EXPECT_THAT(why.to_string(), HasSubstr("rank 1"));
    EXPECT_FALSE(seats.enqueue(rank, {reduce(CallKind::all_reduce, seats[rank], 8)}).ok());
  }
}

// Again and again, at moments that are never quite the same: nothing hangs, and what each of them
// had of the devices the next ones get.
TEST_F(NcclKernels, AbortsEndCallsThatAreUnderWay) {
  for (int time = 0; time < 30; ++time) {
    Seats seats(driver(), {0, 0, 1});
    seats.lay_out(1000, 1000);
    for (int call = 0; call < 3; ++call)
      for (Rank rank = 0; rank < (call < 2 ? 3 : 2); ++rank)
        ASSERT_TRUE(seats.enqueue(rank, {reduce(CallKind::all_reduce, seats[rank], 1000)}).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(37 * (time % 20)));
    for (Rank rank = 0; rank < 3; ++rank) seats[rank].comm->abort();
    seats.synchronize();
    EXPECT_EQ(seats[0].comm->failure().code(), StatusCode::aborted);
  }
}

// Memory that a stream may still use stays; nobody waits until the stream gets there.
TEST_F(NcclKernels, AnAbortWaitsForNoStream) {
  Gate gate;
  auto seats = std::make_unique<Seats>(driver(), std::vector{0, 1});
  const auto other = cuda::ContextScope::enter(driver(), (*seats)[0].context);
  const auto held = cuda::OwnStream::make(driver());
  gate.hold(driver(), held->get());
  seats->lay_out(8, 8);
  Comm& comm = *(*seats)[0].comm;
  ASSERT_TRUE(comm.device_side()
                  .enqueue(comm, held->get(), {reduce(CallKind::all_reduce, (*seats)[0], 8)})
                  .ok());
  for (Rank rank = 0; rank < 2; ++rank) (*seats)[rank].comm->abort();
  seats->leave();
  gate.open();
  EXPECT_TRUE(driver().synchronize(held->get()).ok());
}

}  // namespace
}  // namespace tutti::testing

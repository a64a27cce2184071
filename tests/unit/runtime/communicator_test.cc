// Communicators whose ranks are threads: every collective in every element type and operation,
// blocking and asynchronous, split, errors, abort and time-out. Values are small whole numbers that
// every type holds exactly, so results are compared bit for bit.
#include "tutti/communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "transport/shm/heap.hpp"

namespace tutti {
namespace {

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

template <typename T>
T make(double value) {
  if constexpr (std::is_same_v<T, float16>)
    return to_float16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, float8_e4m3>)
    return to_float8_e4m3(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, float8_e5m2>)
    return to_float8_e5m2(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <typename T>
double read(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(to_float(value));
}

// Contributions 1..4, or 1..2 where they are multiplied, so that 9 ranks stay exact in 8 bits; 0..1
// where an 8-bit float adds them, which counts to 8 in two bits of fraction.
template <typename T>
double contribution(Rank rank, std::size_t i, ReduceOp op) {
  const std::size_t mixed = i * 5 + idx(rank) * 3;
  if (op == ReduceOp::prod) return 1 + static_cast<double>(mixed % 2);
  constexpr bool kTiny = std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;
  if (kTiny && (op == ReduceOp::sum || op == ReduceOp::avg)) return static_cast<double>(mixed % 2);
  return 1 + static_cast<double>(mixed % 4);
}

template <typename T>
double folded(int ranks, std::size_t i, ReduceOp op) {
  double value = contribution<T>(0, i, op);
  for (Rank q = 1; q < ranks; ++q) {
    const double other = contribution<T>(q, i, op);
    if (op == ReduceOp::prod)
      value *= other;
    else if (op == ReduceOp::min)
      value = std::min(value, other);
    else if (op == ReduceOp::max)
      value = std::max(value, other);
    else
      value += other;
  }
  return value;
}

template <typename T>
double reduced(int ranks, std::size_t i, ReduceOp op) {
  const double value = folded<T>(ranks, i, op);
  if (op != ReduceOp::avg) return value;
  if constexpr (std::is_integral_v<T>) return static_cast<double>(static_cast<long>(value) / ranks);
  if constexpr (std::is_same_v<T, double>) return value / ranks;
  return read(make<T>(static_cast<double>(static_cast<float>(value) / static_cast<float>(ranks))));
}

// Runs `body(communicator)` on a thread for each rank.
void on_ranks(int size, const std::function<void(Communicator&)>& body,
              const CommunicatorOptions& options = {}) {
  auto communicators = Communicator::for_threads(size, options);
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&] { body(communicator); });
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
std::vector<T> inputs(Rank rank, std::size_t count, ReduceOp op) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = make<T>(contribution<T>(rank, i, op));
  return values;
}

template <typename T>
void check_reductions(Communicator& comm, std::size_t count, ReduceOp op) {
  const int n = comm.size();
  const auto input = inputs<T>(comm.rank(), count * idx(n), op);
  std::vector<T> output(count * idx(n), make<T>(9));
  const DataType type = data_type_of<T>();
  ASSERT_TRUE(comm.all_reduce(input.data(), output.data(), count, type, op).ok());
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(read(output[i]), reduced<T>(n, i, op)) << i;
  auto data = input;
  ASSERT_TRUE(comm.all_reduce(std::span<T>(data), op).ok());
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(read(data[i]), reduced<T>(n, i, op)) << i;
  ASSERT_TRUE(comm.reduce_scatter(input.data(), output.data(), count, type, op).ok());
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(read(output[i]), reduced<T>(n, idx(comm.rank()) * count + i, op)) << i;
  const Rank root = n - 1;
  ASSERT_TRUE(comm.reduce(input.data(), output.data(), count, type, op, root).ok());
  for (std::size_t i = 0; i < count && comm.rank() == root; ++i)
    ASSERT_EQ(read(output[i]), reduced<T>(n, i, op)) << i;
}

template <typename T>
void check_movement(Communicator& comm, std::size_t count) {
  const auto n = idx(comm.size());
  const auto op = ReduceOp::sum;
  const auto input = inputs<T>(comm.rank(), count * n, op);
  std::vector<T> output(count * n, make<T>(9));
  const DataType type = data_type_of<T>();
  ASSERT_TRUE(comm.all_gather(input.data(), output.data(), count, type).ok());
  for (std::size_t i = 0; i < output.size(); ++i)
    ASSERT_EQ(read(output[i]), contribution<T>(static_cast<Rank>(i / count), i % count, op));
  ASSERT_TRUE(comm.all_to_all(input.data(), output.data(), count, type).ok());
  for (std::size_t i = 0; i < output.size(); ++i)
    ASSERT_EQ(read(output[i]), contribution<T>(static_cast<Rank>(i / count),
                                               idx(comm.rank()) * count + i % count, op));
  const Rank last = comm.size() - 1;
  const bool is_last = comm.rank() == last;
  std::fill(output.begin(), output.end(), make<T>(9));
  T* const gathered = is_last ? output.data() : nullptr;  // the others need none
  ASSERT_TRUE(comm.gather(input.data(), gathered, count, type, last).ok());
  for (std::size_t i = 0; i < output.size(); ++i)
    ASSERT_EQ(read(output[i]), is_last
                                   ? contribution<T>(static_cast<Rank>(i / count), i % count, op)
                                   : read(make<T>(9)));
  const T* const scattered = is_last ? input.data() : nullptr;
  ASSERT_TRUE(comm.scatter(scattered, output.data(), count, type, last).ok());
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(read(output[i]), contribution<T>(last, idx(comm.rank()) * count + i, op));
  std::vector<T> data = comm.rank() == 0 ? input : std::vector<T>(input.size(), make<T>(9));
  ASSERT_TRUE(comm.broadcast(std::span<T>(data), 0).ok());
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(read(data[i]), contribution<T>(0, i, op));
  const Rank right = (comm.rank() + 1) % comm.size();
  const Rank left = (comm.rank() + comm.size() - 1) % comm.size();
  ASSERT_TRUE(comm.send_recv(input.data(), right, output.data(), left, count, type).ok());
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(read(output[i]), contribution<T>(left, i, op));
  ASSERT_TRUE(comm.barrier().ok());
}

class EveryRankCount : public ::testing::TestWithParam<int> {};

TEST_P(EveryRankCount, EveryTypeAndOperation) {
  on_ranks(GetParam(), [](Communicator& comm) {
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{257}}) {
      for (ReduceOp op : kAllReduceOps) {
        check_reductions<float>(comm, count, op);
        check_reductions<double>(comm, count, op);
        check_reductions<std::int8_t>(comm, count, op);
        check_reductions<std::uint8_t>(comm, count, op);
        check_reductions<std::int32_t>(comm, count, op);
        check_reductions<std::uint32_t>(comm, count, op);
        check_reductions<std::uint64_t>(comm, count, op);
        check_reductions<std::int64_t>(comm, count, op);
        check_reductions<bfloat16>(comm, count, op);
        check_reductions<float16>(comm, count, op);
        check_reductions<float8_e4m3>(comm, count, op);
        check_reductions<float8_e5m2>(comm, count, op);
      }
      check_movement<float>(comm, count);
      check_movement<std::int8_t>(comm, count);
      check_movement<bfloat16>(comm, count);
      check_movement<float8_e4m3>(comm, count);
      check_movement<float8_e5m2>(comm, count);
      check_movement<double>(comm, count);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryRankCount, ::testing::Range(1, 10));

TEST(Communicator, LargeBuffersOfAnOddSize) {
  on_ranks(3, [](Communicator& comm) { check_reductions<float>(comm, 300007, ReduceOp::sum); });
}

TEST(Communicator, EveryCollectiveWithChecksums) {
  CommunicatorOptions options;
  options.checksums = true;
  for (int ranks = 1; ranks <= 5; ++ranks)
    on_ranks(
        ranks,
        [](Communicator& comm) {
          for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{257}}) {
            check_reductions<float>(comm, count, ReduceOp::sum);
            check_reductions<bfloat16>(comm, count, ReduceOp::max);
            check_movement<std::int8_t>(comm, count);
            check_movement<double>(comm, count);
          }
          check_reductions<float>(comm, 100003, ReduceOp::sum);
          check_movement<double>(comm, 20011);
          auto half = comm.split(comm.rank() % 2);
          ASSERT_TRUE(half.ok()) << half.status().to_string();
          check_reductions<std::int32_t>(*half, 5000, ReduceOp::sum);
          const auto report = comm.explain(Collective::all_reduce, 1 << 20, DataType::float32);
          ASSERT_TRUE(report.ok()) << report.status().to_string();
          EXPECT_EQ(report->lowering, "staged") << "frames are what is checked";
        },
        options);
}

TEST(Communicator, AsynchronousWorksCompleteInAnyOrderOfWaiting) {
  on_ranks(4, [](Communicator& comm) {
    std::vector<std::vector<std::int64_t>> buffers(8);
    std::vector<Work> works;
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      buffers[k].assign(1000 + k, static_cast<std::int64_t>(k) + comm.rank());
      auto work = comm.all_reduce_async(buffers[k].data(), buffers[k].data(), buffers[k].size(),
                                        DataType::int64, ReduceOp::sum);
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      works.push_back(*std::move(work));
    }
    for (std::size_t k = works.size(); k-- > 0;) ASSERT_TRUE(works[k].wait().ok());
    for (std::size_t k = 0; k < buffers.size(); ++k)
      for (std::int64_t value : buffers[k]) ASSERT_EQ(value, 4 * static_cast<std::int64_t>(k) + 6);
  });
}

TEST(Communicator, TestMovesAWorkForwardWithoutBlocking) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(5000, 1.0F);
    auto work = comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::float32,
                                      ReduceOp::sum);
    ASSERT_TRUE(work.ok());
    while (!work->test()) std::this_thread::yield();
    ASSERT_TRUE(work->wait().ok());
    ASSERT_EQ(data[4999], 2.0F);
  });
}

TEST(Communicator, SplitMakesCommunicatorsOfTheSameColorOrderedByKey) {
  on_ranks(7, [](Communicator& comm) {
    const int color = comm.rank() == 6 ? -1 : comm.rank() % 2;
    auto part = comm.split(color, -comm.rank());
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    if (color < 0) {
      EXPECT_EQ(part->size(), 0);
      EXPECT_EQ(part->barrier().code(), StatusCode::invalid_argument);
      return;
    }
    ASSERT_EQ(part->size(), 3);
    // Ranks 0 2 4 (or 1 3 5) in falling order.
    EXPECT_EQ(part->rank(), (4 + color - comm.rank()) / 2);
    std::int64_t sum = comm.rank();
    ASSERT_TRUE(part->all_reduce(std::span<std::int64_t>(&sum, 1), ReduceOp::sum).ok());
    EXPECT_EQ(sum, color == 0 ? 6 : 9);
    ASSERT_TRUE(part->split(0).ok());  // a split of a split
  });
}

// A call like the one before it takes a shorter way; each of these differs in one thing only, or
// comes after something else.
TEST(Communicator, TheSameCallAgainIsTheCallThatWasMade) {
  on_ranks(3, [](Communicator& comm) {
    std::vector<std::int32_t> in(8);
    std::vector<std::int32_t> out(24);
    std::int32_t turn = 0;
    const auto fill = [&] {
      ++turn;
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = turn + comm.rank() * 10 + static_cast<std::int32_t>(i);
      std::fill(out.begin(), out.end(), -1);
    };
    const auto reduce = [&](ReduceOp op, std::size_t count, std::int32_t last) {
      for (int again = 0; again < 3; ++again) {
        fill();
        ASSERT_TRUE(comm.all_reduce(in.data(), out.data(), count, DataType::int32, op).ok());
        const auto i = static_cast<std::int32_t>(count) - 1;
        ASSERT_EQ(out[count - 1], last + (op == ReduceOp::sum ? 3 : 1) * (turn + i));
        ASSERT_EQ(out[count], -1);
      }
    };
    reduce(ReduceOp::sum, 2, 30);
    reduce(ReduceOp::max, 2, 20);
    reduce(ReduceOp::min, 2, 0);
    reduce(ReduceOp::min, 7, 0);
    for (const Rank root : {0, 1, 1, 2, 0}) {
      fill();
      ASSERT_TRUE(comm.broadcast(in.data(), out.data(), 2, DataType::int32, root).ok());
      ASSERT_EQ(out[1], turn + root * 10 + 1);
    }
    for (const DataType type : {DataType::int32, DataType::uint32, DataType::int64}) {
      fill();
      ASSERT_TRUE(comm.all_gather(in.data(), out.data(), 2, type).ok());
      ASSERT_EQ(out[type == DataType::int64 ? 8 : 4], turn + 20);
    }
    reduce(ReduceOp::sum, 2, 30);
    fill();
    auto work = comm.all_reduce_async(in.data(), out.data(), 4, DataType::int32, ReduceOp::sum);
    ASSERT_TRUE(work.ok() && work->wait().ok());
    ASSERT_EQ(out[3], 3 * (turn + 3) + 30);
    reduce(ReduceOp::sum, 2, 30);
    reduce(ReduceOp::sum, 4, 30);
  });
}

TEST(Communicator, TheSameCallAgainIsCheckedAgain) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(8, 1.0F);
    const auto call = [&](const float* in, float* out) {
      return comm.all_reduce(in, out, 4, DataType::float32, ReduceOp::max).code();
    };
    float* const memory = data.data();
    EXPECT_EQ(call(memory, memory), StatusCode::ok);
    EXPECT_EQ(call(memory, nullptr), StatusCode::invalid_argument);
    EXPECT_EQ(call(memory, memory + 4), StatusCode::ok);
    EXPECT_EQ(call(memory, memory + 1), StatusCode::invalid_argument);
    EXPECT_EQ(call(memory, memory), StatusCode::ok) << "a refused call is not counted";
    auto larger = comm.all_reduce_async(memory, memory, 6, DataType::float32, ReduceOp::max);
    EXPECT_TRUE(larger.ok() && larger->wait().ok());
    EXPECT_EQ(call(memory, memory + 4), StatusCode::ok) << "four do not overlap, as six would";
    // The other rank makes another call.
    const Status status = comm.all_reduce(memory, memory, 4, DataType::float32,
                                          comm.rank() == 0 ? ReduceOp::max : ReduceOp::min);
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
    EXPECT_EQ(call(memory, memory), StatusCode::mismatch) << "a failure stays";
    EXPECT_EQ(call(memory, memory), StatusCode::mismatch);
  });
}

TEST(Communicator, WrongArgumentsAreErrorsThatNameRankCallAndValue) {
  on_ranks(2, [](Communicator& comm) {
    float data[8] = {};
    auto code = [](const Status& status) { return status.code(); };
    EXPECT_EQ(code(comm.broadcast(data, data, 4, DataType::float32, 2)),
              StatusCode::invalid_argument);
    EXPECT_EQ(code(comm.all_reduce(nullptr, data, 4, DataType::float32, ReduceOp::sum)),
              StatusCode::invalid_argument);
    EXPECT_EQ(code(comm.all_to_all(data, data, 4, DataType::float32)),
              StatusCode::invalid_argument);
    EXPECT_EQ(code(comm.all_reduce(data, data + 1, 4, DataType::float32, ReduceOp::sum)),
              StatusCode::invalid_argument);
    EXPECT_EQ(code(comm.send(data, 1, DataType::float32, 5)), StatusCode::invalid_argument);
    const Status status = comm.reduce(data, data, 1, DataType::float32, ReduceOp::sum, -3);
    EXPECT_NE(status.message().find("rank " + std::to_string(comm.rank())), std::string::npos);
    EXPECT_NE(status.message().find("reduce: root -3"), std::string::npos) << status.message();
    EXPECT_TRUE(comm.barrier().ok()) << "a refused call leaves the communicator as it was";
  });
}

TEST(Communicator, DifferentCallsAreAnErrorNotAHang) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(64, 1.0F);
    const std::size_t count = comm.rank() == 0 ? 32 : 64;
    const Status status =
        comm.all_reduce(data.data(), data.data(), count, DataType::float32, ReduceOp::sum);
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
    EXPECT_NE(status.message().find("32 x float"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("64 x float"), std::string::npos) << status.message();
  });
}

TEST(Communicator, ADeadlineNamesTheRankThatIsMissing) {
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(50);
  std::atomic<bool> first_gave_up{false};
  on_ranks(
      3,
      [&](Communicator& comm) {
        float value = 1;
        if (comm.rank() == 2) {
          while (!first_gave_up) std::this_thread::yield();
          return;
        }
        const Status status = comm.all_reduce(std::span<float>(&value, 1), ReduceOp::sum);
        EXPECT_EQ(status.code(), StatusCode::timeout) << status.to_string();
        EXPECT_EQ(comm.barrier().code(), StatusCode::timeout) << "the first failure is sticky";
        first_gave_up = true;
      },
      options);
}

TEST(Communicator, AbortFromAnotherThreadEndsACall) {
  auto communicators = Communicator::for_threads(2);
  ASSERT_TRUE(communicators.ok());
  Communicator& lonely = (*communicators)[0];
  std::thread rank0([&] { EXPECT_EQ(lonely.barrier().code(), StatusCode::aborted); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  lonely.abort();
  rank0.join();
}

TEST(Communicator, ForcedSettingsAreHonouredOrRefused) {
  CommunicatorOptions options;
  options.algorithm = "ring";
  on_ranks(
      4,
      [](Communicator& comm) {
        auto report = comm.explain(Collective::all_reduce, 1 << 20, DataType::float32);
        ASSERT_TRUE(report.ok()) << report.status().to_string();
        EXPECT_EQ(report->algorithm, "ring");
        check_reductions<float>(comm, 1000, ReduceOp::sum);
      },
      options);
  options.algorithm = "no-such-thing";
  on_ranks(
      2,
      [](Communicator& comm) {
        float value = 1;
        const Status status = comm.all_reduce(std::span<float>(&value, 1), ReduceOp::sum);
        EXPECT_EQ(status.code(), StatusCode::invalid_argument);
        EXPECT_NE(status.message().find("ring"), std::string::npos) << "lists what there is";
      },
      options);
}

TEST(Communicator, MovedFromAndDefaultOnesSayThatTheyAreNotConnected) {
  Communicator none;
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.barrier().code(), StatusCode::invalid_argument);
  EXPECT_TRUE(none.close().ok());
}

TEST(Communicator, MemoryFromAllocateIsZeroAndPageAligned) {
  auto* memory = static_cast<std::byte*>(allocate(100000));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0U);
  for (std::size_t i = 0; i < 100000; ++i) ASSERT_EQ(memory[i], std::byte{0});
  EXPECT_TRUE(transport::find_shared(memory, 100000).has_value()) << "peers can map it";
  deallocate(memory);
  deallocate(nullptr);
}

}  // namespace
}  // namespace tutti

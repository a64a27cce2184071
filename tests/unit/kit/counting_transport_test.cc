// Bytes of calls, counted where frames leave and arrive, against what formulas and schedules say.
// Every count is a whole number and every comparison is exact.
#include "kit/counting_transport.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "collectives/algorithms/table.hpp"
#include "collectives/expand.hpp"
#include "unit/kit/ranks.hpp"
#include "unit/runtime/processes.hpp"

namespace tutti::kit {
namespace {

using namespace testing;

constexpr std::size_t kWord = sizeof(std::int64_t);
constexpr int kManyRanks[] = {2, 3, 4, 8};

CommunicatorOptions counted(const std::string& algorithm = "") {
  CommunicatorOptions options;
  options.algorithm = algorithm;
  options.wrap_transport = TrafficBook().wrapper();
  return options;
}

// What a rank sends and receives in `call`.
struct Moved {
  Traffic sent;
  Traffic received;
};

Moved moved_by(const Communicator& comm, const std::function<Status()>& call) {
  const TrafficCounter& counter = *traffic_of(comm);
  const Moved before{counter.sent(), counter.received()};
  const Status status = call();
  EXPECT_TRUE(status.ok()) << status.to_string();
  return {counter.sent() - before.sent, counter.received() - before.received};
}

void expect_both(const Moved& moved, std::size_t bytes, Collective collective) {
  EXPECT_EQ(moved.sent.payload_bytes, bytes) << to_string(collective);
  EXPECT_EQ(moved.received.payload_bytes, bytes) << to_string(collective);
  EXPECT_EQ(moved.sent.by(collective), bytes) << to_string(collective);
}

// `all`: elements of the whole vector, of which each rank has an equal part.
void check_ring(Communicator& comm, std::size_t all) {
  const std::size_t n = idx(comm.size());
  const std::size_t part = all / n;
  const auto input = contributions(comm.rank(), all);
  std::vector<std::int64_t> output(all);
  const auto i64 = DataType::int64;
  const std::size_t once = (n - 1) * part * kWord;
  const Moved reduced = moved_by(
      comm, [&] { return comm.all_reduce(input.data(), output.data(), all, i64, ReduceOp::sum); });
  expect_both(reduced, 2 * once, Collective::all_reduce);
  for (std::size_t i = 0; i < all; ++i) ASSERT_EQ(output[i], sum_of_contributions(comm.size(), i));
  const Moved gathered =
      moved_by(comm, [&] { return comm.all_gather(input.data(), output.data(), part, i64); });
  expect_both(gathered, once, Collective::all_gather);
  const Moved scattered = moved_by(comm, [&] {
    return comm.reduce_scatter(input.data(), output.data(), part, i64, ReduceOp::sum);
  });
  expect_both(scattered, once, Collective::reduce_scatter);
  // All of it to the right, and from the left.
  const TrafficCounter& counter = *traffic_of(comm);
  const Rank right = (comm.rank() + 1) % comm.size();
  EXPECT_EQ(counter.sent(right).payload_bytes, 4 * once);
  EXPECT_EQ(counter.sent().payload_bytes, 4 * once);
}

TEST(CountingTransport, ARingMovesWhatTheFormulaSays) {
  for (const int ranks : kManyRanks)
    for (const std::size_t part : std::initializer_list<std::size_t>{1, 17, 1000, 50'000})
      on_ranks(ranks, counted("ring"),
               [&](Communicator& comm) { check_ring(comm, part * idx(comm.size())); });
}

// A channel is cut into as many chunks as there are ranks: with equal chunks the formula holds.
TEST(CountingTransport, ChannelsSlicesAndChecksumsDoNotChangeTheCount) {
  CommunicatorOptions options = counted("ring");
  for (const int channels : {1, 2, 3}) {
    for (const std::size_t slice : std::initializer_list<std::size_t>{512, 65'536}) {
      options.channels = channels;
      options.slice_bytes = slice;
      options.checksums = channels == 2;
      on_ranks(4, options, [](Communicator& comm) { check_ring(comm, 4 * 6000); });
    }
  }
}

// ---- What schedules say ----

std::size_t part_of(std::size_t count, std::size_t part, std::size_t parts) {
  return (part + 1) * count / parts - part * count / parts;
}

// Elements of the chunk, on all channels together.
std::size_t chunk_elements(const ScheduleShape& shape, int chunk, std::size_t count, int channels) {
  std::size_t elements = 0;
  for (std::size_t channel = 0; channel < idx(channels); ++channel)
    elements += part_of(part_of(count, channel, idx(channels)), idx(chunk % shape.chunks),
                        idx(shape.chunks));
  return elements;
}

// Bytes that `rank` sends to each peer.
std::map<Rank, std::size_t> told_by_schedule(const Schedule& schedule, Rank rank, std::size_t count,
                                             int channels) {
  std::map<Rank, std::size_t> bytes;
  for (const ExpandedStep& step : collectives::unroll(schedule, rank)) {
    std::vector<ExpandedOperand> operands = step.sources;
    operands.insert(operands.end(), step.destinations.begin(), step.destinations.end());
    const auto memory = std::find_if(operands.begin(), operands.end(), [](const auto& operand) {
      return operand.kind == Operand::Kind::chunks;
    });
    std::size_t elements = 0;
    for (int chunk = memory->index; chunk < memory->index + memory->count; ++chunk)
      elements += chunk_elements(schedule.shape, chunk, count, channels);
    for (const ExpandedOperand& destination : step.destinations)
      if (destination.kind == Operand::Kind::message) bytes[destination.index] += elements * kWord;
  }
  return bytes;
}

Status make_call(Communicator& comm, Collective collective, const std::int64_t* input,
                 std::int64_t* output, std::size_t count, Rank root) {
  const auto i64 = DataType::int64;
  switch (collective) {
    case Collective::all_reduce:
      return comm.all_reduce(input, output, count, i64, ReduceOp::sum);
    case Collective::all_gather:
      return comm.all_gather(input, output, count, i64);
    case Collective::reduce_scatter:
      return comm.reduce_scatter(input, output, count, i64, ReduceOp::sum);
    case Collective::broadcast:
      return comm.broadcast(input, output, count, i64, root);
    case Collective::reduce:
      return comm.reduce(input, output, count, i64, ReduceOp::sum, root);
    case Collective::gather:
      return comm.gather(input, output, count, i64, root);
    case Collective::scatter:
      return comm.scatter(input, output, count, i64, root);
    case Collective::all_to_all:
      return comm.all_to_all(input, output, count, i64);
    case Collective::send_recv:
    case Collective::barrier:
      break;
  }
  return comm.barrier();
}

void check_schedule(const Schedule& schedule, std::size_t count, int channels) {
  const ScheduleShape& shape = schedule.shape;
  CommunicatorOptions options = counted(schedule.algorithm);
  options.channels = channels;
  options.slice_bytes = 4096;
  on_ranks(shape.ranks, options, [&](Communicator& comm) {
    const auto input = contributions(comm.rank(), count * idx(shape.ranks));
    std::vector<std::int64_t> output(input.size());
    const Status status =
        make_call(comm, shape.collective, input.data(), output.data(), count, shape.root);
    ASSERT_TRUE(status.ok()) << status.to_string();
    auto told = told_by_schedule(schedule, comm.rank(), count, channels);
    for (Rank peer = 0; peer < comm.size(); ++peer)
      EXPECT_EQ(traffic_of(comm)->sent(peer).payload_bytes, told[peer])
          << to_string(shape.collective) << " " << schedule.algorithm << ": " << count
          << " elements on " << channels << " channels, rank " << comm.rank() << " of "
          << comm.size() << " to " << peer;
  });
}

class CountedAlgorithms : public ::testing::TestWithParam<Collective> {};

TEST_P(CountedAlgorithms, MoveWhatTheirSchedulesSay) {
  int checked = 0;
  for (const collectives::Algorithm* algorithm : collectives::algorithms_for(GetParam())) {
    for (const int ranks : kManyRanks) {
      const auto schedule =
          collectives::build(*algorithm, ranks, has_root(GetParam()) ? ranks - 1 : 0);
      if (!schedule.ok()) continue;  // serves other numbers of ranks, or several hosts
      checked += 1;
      for (const std::size_t count : std::initializer_list<std::size_t>{1, 7, 3001})
        for (const int channels : {1, 2}) check_schedule(*schedule, count, channels);
    }
  }
  EXPECT_GE(checked, 4);
}

INSTANTIATE_TEST_SUITE_P(All, CountedAlgorithms,
                         ::testing::Values(Collective::all_reduce, Collective::all_gather,
                                           Collective::reduce_scatter, Collective::broadcast,
                                           Collective::reduce, Collective::gather,
                                           Collective::scatter, Collective::all_to_all),
                         [](const auto& shown) { return std::string(to_string(shown.param)); });

// ---- Calls without a schedule of their own ----

// What `from` sends to `to`.
std::size_t block(Rank from, Rank to) { return idx(from * 31 + to * 17) % 23 * 100; }

TEST(CountingTransport, AllToAllVMovesTheBlocksOfOthersOnly) {
  for (const int ranks : kManyRanks) {
    on_ranks(ranks, counted(), [&](Communicator& comm) {
      std::vector<std::size_t> sent;
      std::vector<std::size_t> received;
      std::size_t all_sent = 0;
      std::size_t all_received = 0;
      for (Rank peer = 0; peer < ranks; ++peer) {
        sent.push_back(block(comm.rank(), peer));
        received.push_back(block(peer, comm.rank()));
        all_sent += sent.back();
        all_received += received.back();
      }
      const auto input = contributions(comm.rank(), all_sent + 1);
      std::vector<std::int64_t> output(all_received + 1);
      const Status status =
          comm.all_to_all_v(input.data(), {sent}, output.data(), {received}, DataType::int64);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const TrafficCounter& counter = *traffic_of(comm);
      for (Rank peer = 0; peer < ranks; ++peer) {
        const bool other = peer != comm.rank();
        EXPECT_EQ(counter.sent(peer).payload_bytes, other ? sent[idx(peer)] * kWord : 0);
        EXPECT_EQ(counter.received(peer).payload_bytes, other ? received[idx(peer)] * kWord : 0);
        EXPECT_EQ(counter.sent(peer).by(Collective::all_to_all), counter.sent(peer).payload_bytes);
      }
    });
  }
}

TEST(CountingTransport, MessagesBetweenTwoRanksAreCountedForThem) {
  constexpr std::size_t kCount = 40'000;
  on_ranks(3, counted(), [](Communicator& comm) {
    auto data = contributions(0, kCount);
    Status status;
    if (comm.rank() == 0) status = comm.send(data.data(), kCount, DataType::int64, 2);
    if (comm.rank() == 2) status = comm.recv(data.data(), kCount, DataType::int64, 0);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const TrafficCounter& counter = *traffic_of(comm);
    EXPECT_EQ(counter.sent().payload_bytes, comm.rank() == 0 ? kCount * kWord : 0);
    EXPECT_EQ(counter.received().payload_bytes, comm.rank() == 2 ? kCount * kWord : 0);
    EXPECT_EQ(counter.sent().by(Collective::send_recv), counter.sent().payload_bytes);
  });
}

// One kilobyte there, in a frame with the call's record; its 32 bytes are no data.
TEST(CountingTransport, RecordsAreCountedApart) {
  on_ranks(2, counted(), [](Communicator& comm) {
    const auto data = contributions(0, 128);
    auto room = data;
    const Moved moved = moved_by(comm, [&] {
      return comm.rank() == 0 ? comm.send(data.data(), 128, DataType::int64, 1)
                              : comm.recv(room.data(), 128, DataType::int64, 0);
    });
    const Traffic& traffic = comm.rank() == 0 ? moved.sent : moved.received;
    EXPECT_EQ(traffic.payload_bytes, 1024u);
    EXPECT_EQ(traffic.frames, 1u);
    EXPECT_EQ(traffic.other_bytes, 32u);
    const Moved met = moved_by(comm, [&] { return comm.barrier(); });
    EXPECT_EQ(met.sent.payload_bytes, 0u);
    EXPECT_EQ(met.sent.frames, 0u);
    EXPECT_GE(met.sent.other_bytes, 32u);
  });
}

// ---- Communicators that are made of others, and processes ----

TEST(CountingTransport, PartsOfACommunicatorHaveCountersOfTheirOwn) {
  TrafficBook book;
  CommunicatorOptions options;
  options.algorithm = "ring";
  options.wrap_transport = book.wrapper();
  on_ranks(4, options, [](Communicator& world) {
    auto pair = world.split(world.rank() / 2);
    ASSERT_TRUE(pair.ok()) << pair.status().to_string();
    const Traffic before = traffic_of(world)->sent();
    auto data = contributions(pair->rank(), 1000);
    ASSERT_TRUE(pair->all_reduce(std::span(data), ReduceOp::sum).ok());
    EXPECT_EQ(traffic_of(*pair)->size(), 2);
    EXPECT_EQ(traffic_of(*pair)->rank(), world.rank() % 2);
    EXPECT_EQ(traffic_of(*pair)->sent().payload_bytes, 8000u);
    EXPECT_EQ(traffic_of(world)->sent().payload_bytes, before.payload_bytes);
  });
  // Their counters outlive them.
  std::map<int, std::size_t> counters;
  for (const auto& counter : book.counters()) counters[counter->size()] += 1;
  EXPECT_EQ(counters, (std::map<int, std::size_t>{{2, 4}, {4, 4}}));
  EXPECT_EQ(book.sent().by(Collective::all_reduce), 4 * 8000u);
}

TEST(CountingTransport, SurvivorsAreCountedToo) {
  on_ranks(3, counted("ring"), [](Communicator& comm) {
    auto fewer = comm.shrink();
    ASSERT_TRUE(fewer.ok()) << fewer.status().to_string();
    ASSERT_NE(traffic_of(*fewer), nullptr);
    auto data = contributions(fewer->rank(), 300);
    ASSERT_TRUE(fewer->all_reduce(std::span(data), ReduceOp::sum).ok());
    EXPECT_EQ(traffic_of(*fewer)->sent().payload_bytes, 3200u);
  });
}

TEST(CountingTransport, ProcessesAreCountedOverEveryTransport) {
  for (const char* transport : {"shm", "tcp"}) {
    CommunicatorOptions options = counted("ring");
    options.transport = transport;
    EXPECT_TRUE(runtime::testing::on_processes(3, options, [](Communicator& comm) {
      check_ring(comm, 3 * 30'000);
      return !::testing::Test::HasFailure();
    })) << transport;
  }
}

}  // namespace
}  // namespace tutti::kit

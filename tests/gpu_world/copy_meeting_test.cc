// Calls by copy engines: what is copied, in which order with everything else on the streams, when
// kernels are to make the call instead, and who is missing.
#include "runtime/gpu/host/copy_meeting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <thread>

#include "collectives/contract.hpp"
#include "gpu_world/worlds.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

constexpr Collective kMovements[] = {Collective::all_gather, Collective::all_to_all,
                                     Collective::broadcast, Collective::gather,
                                     Collective::scatter};

std::unique_ptr<CopyMeeting> meeting_of(Stage& stage) {
  auto made = CopyMeeting::make(stage.world());
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *std::move(made);
}

StageCase movement(Collective collective, std::size_t count, Rank root = 0) {
  StageCase what = sum_of(count);
  what.collective = collective;
  what.root = root;
  return what;
}

// All ranks come, spoken for by this thread. By rank: what it hears.
std::vector<Met> meet_all(CopyMeeting& meeting, Stage& stage) {
  for (Rank rank = 0; rank < stage.ranks(); ++rank) {
    for (Rank earlier = 0; earlier < rank; ++earlier) EXPECT_FALSE(meeting.look(earlier));
    const Status came = meeting.come(rank, stage.call_of(rank), stage.stream(rank));
    EXPECT_TRUE(came.ok()) << came.to_string();
  }
  std::vector<Met> all;
  for (Rank rank = 0; rank < stage.ranks(); ++rank) {
    auto met = meeting.look(rank);
    EXPECT_TRUE(met.has_value()) << "rank " << rank;
    all.push_back(met.value_or(Met{}));
  }
  return all;
}

void expect_copied(const std::vector<Met>& all) {
  for (const Met& met : all) {
    EXPECT_TRUE(met.status.ok()) << met.status.to_string();
    EXPECT_TRUE(met.copied) << met.why_kernels;
  }
}

void expect_kernels(const std::vector<Met>& all, const char* why) {
  for (const Met& met : all) {
    EXPECT_TRUE(met.status.ok()) << met.status.to_string();
    EXPECT_FALSE(met.copied);
    EXPECT_THAT(met.why_kernels, HasSubstr(why));
  }
}

// Every block of an output that a contract says anything about comes from where it says, once.
TEST(BlockCopies, AreWhatContractsSay) {
  for (const Collective collective : kMovements)
    for (int ranks = 1; ranks <= 5; ++ranks)
      for (Rank root = 0; root < (has_root(collective) ? ranks : 1); ++root) {
        ScheduleShape shape;
        shape.collective = collective;
        shape.ranks = ranks;
        shape.root = root;
        std::map<std::pair<Rank, std::size_t>, BlockCopy> by_place;
        for (const BlockCopy& copy : copies_of(collective, root, ranks))
          EXPECT_TRUE(by_place.emplace(std::pair(copy.to, copy.output_block), copy).second);
        std::size_t needed = 0;
        for (Rank rank = 0; rank < ranks; ++rank)
          for (int block = 0; block < collectives::contract_chunks(shape, Buffer::output);
               ++block) {
            const auto wanted = collectives::required_output(shape, rank, block);
            if (wanted.rule == collectives::Requirement::Rule::anything) continue;
            ++needed;
            const auto found = by_place.find({rank, static_cast<std::size_t>(block)});
            ASSERT_NE(found, by_place.end()) << to_string(collective);
            ASSERT_EQ(wanted.atoms.size(), 1U);
            EXPECT_EQ(found->second.from, wanted.atoms[0].rank);
            EXPECT_EQ(found->second.input_block, static_cast<std::size_t>(wanted.atoms[0].chunk));
          }
        EXPECT_EQ(by_place.size(), needed) << to_string(collective);
      }
  for (const Collective collective : {Collective::all_reduce, Collective::reduce,
                                      Collective::reduce_scatter, Collective::barrier})
    EXPECT_TRUE(copies_of(collective, 0, 3).empty());
}

TEST(CopyMeeting, MakesWhatOnlyMovesData) {
  HostDevice first({0});
  HostDevice second({1});
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<Device*> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank % 2 == 0 ? &first : &second);
    auto stage = Stage::make(devices, small_options());
    ASSERT_TRUE(stage.ok()) << stage.status().to_string();
    const auto meeting = meeting_of(**stage);
    const int launches = first.launches() + second.launches();
    for (const Collective collective : kMovements)
      for (const bool in_place : {false, true})
        for (const std::size_t count : {0U, 7U, 500U}) {
          if (in_place && !collectives::may_run_in_place(collective)) continue;
          StageCase what = movement(collective, count, ranks - 1);
          what.in_place = in_place;
          ASSERT_TRUE((*stage)->set(what).ok());
          expect_copied(meet_all(*meeting, **stage));
          ASSERT_TRUE((*stage)->synchronize().ok());
          const Status status = (*stage)->judge();
          EXPECT_TRUE(status.ok()) << what.text() << ": " << status.to_string();
        }
    EXPECT_EQ(first.launches() + second.launches(), launches);
  }
}

// Nobody's input is read, or output written, before his stream comes to the call.
TEST(CopyMeeting, WaitsForAllStreams) {
  HostDevice device;
  const auto stage = make_stage(device, 3);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  ASSERT_TRUE(stage->set(movement(Collective::all_gather, 500)).ok());
  const GpuCall held = stage->call_of(1);
  const std::size_t bytes = 3 * held.count * size_of(held.type);
  const auto* const output = static_cast<const std::byte*>(held.output);
  const std::vector<std::byte> before(output, output + bytes);
  std::promise<void> gate;
  device.hold(stage->stream(1), gate.get_future());
  expect_copied(meet_all(*meeting, *stage));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), output));
  for (Rank rank = 0; rank < 3; ++rank) EXPECT_FALSE(*device.reached(stage->stream(rank)));
  EXPECT_FALSE(stage->judge().ok());
  gate.set_value();
  ASSERT_TRUE(stage->synchronize().ok());
  EXPECT_TRUE(stage->judge().ok());
}

// What comes next on any stream finds all of the call done, also what another rank's copies do.
TEST(CopyMeeting, EndsOnAllStreamsTogether) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::vector<std::byte> input(kBytes, std::byte{7});
  std::vector<std::vector<std::byte>> outputs(2, std::vector<std::byte>(kBytes));
  std::byte last = {};
  for (Rank rank = 0; rank < 2; ++rank) {
    GpuCall call;
    call.collective = Collective::broadcast;
    call.type = DataType::uint8;
    call.input = input.data();
    call.output = outputs[static_cast<std::size_t>(rank)].data();
    call.count = kBytes;
    ASSERT_TRUE(meeting->come(rank, call, stage->stream(rank)).ok());
  }
  ASSERT_TRUE(device.copy(&last, &outputs[1].back(), 1, stage->stream(1)).ok());
  ASSERT_TRUE(device.synchronize(stage->stream(1)).ok());
  EXPECT_EQ(last, std::byte{7});
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_TRUE(meeting->look(rank)->copied);
}

// Calls of one rank keep their order, by whatever they are made, on whatever stream.
TEST(CopyMeeting, KeepsItsPlaceAmongKernels) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  const std::vector<StreamHandle> others{*device.make_stream(), *device.make_stream()};
  std::vector<std::vector<int>> sums(2, std::vector<int>(400));
  std::vector<std::vector<int>> gathered(2, std::vector<int>(800));
  const std::vector<int> ones(400, 1);
  std::promise<void> gate;
  device.hold(others[0], gate.get_future());
  for (const Rank rank : {0, 1}) {
    GpuCall sum;
    sum.type = DataType::int32;
    sum.input = ones.data();
    sum.output = sums[static_cast<std::size_t>(rank)].data();
    sum.count = 400;
    ASSERT_TRUE(stage->world().rank(rank).call(sum, others[static_cast<std::size_t>(rank)]).ok());
    GpuCall gather = sum;
    gather.collective = Collective::all_gather;
    gather.input = sum.output;
    gather.output = gathered[static_cast<std::size_t>(rank)].data();
    ASSERT_TRUE(meeting->come(rank, gather, stage->stream(rank)).ok());
  }
  gate.set_value();
  ASSERT_TRUE(stage->synchronize().ok());
  for (const Rank rank : {0, 1}) EXPECT_TRUE(meeting->look(rank)->copied);
  for (const auto& values : gathered) EXPECT_EQ(values, std::vector<int>(800, 2));
}

TEST(CopyMeeting, LeavesTheRestToKernels) {
  HostDevice first({0});
  HostDevice second({1});
  const std::vector<Device*> devices{&first, &second};
  auto made = Stage::make(devices, small_options());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Stage& stage = **made;
  const auto meeting = meeting_of(stage);
  ASSERT_TRUE(stage.set(movement(Collective::all_gather, 50)).ok());
  second.set_reachable(false);
  expect_kernels(meet_all(*meeting, stage), "rank 1's memory cannot be reached");
  second.set_reachable(true);
  ASSERT_TRUE(first.begin_capture(stage.stream(0)).ok());
  expect_kernels(meet_all(*meeting, stage), "captured into different graphs");
  first.destroy_graph(*first.end_capture(stage.stream(0)));
  for (const Rank rank : {0, 1}) {
    GpuCall call = stage.call_of(rank);
    call.count -= static_cast<std::size_t>(rank);
    ASSERT_TRUE(meeting->come(rank, call, stage.stream(rank)).ok());
  }
  for (const Rank rank : {0, 1})
    EXPECT_THAT(meeting->look(rank)->why_kernels, HasSubstr("different calls"));
  std::vector<int> memory(200);
  for (const Rank rank : {0, 1}) {
    GpuCall call;
    call.collective = Collective::all_to_all;
    call.type = DataType::int32;
    call.input = call.output = memory.data() + 100 * rank;
    call.count = 50;
    ASSERT_TRUE(meeting->come(rank, call, stage.stream(rank)).ok());
  }
  for (const Rank rank : {0, 1})
    EXPECT_THAT(meeting->look(rank)->why_kernels, HasSubstr("in place"));
  expect_copied(meet_all(*meeting, stage));
}

TEST(CopyMeeting, RefusesWhatCannotBeRight) {
  HostDevice device;
  const auto stage = make_stage(device, 1);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  ASSERT_TRUE(stage->set(movement(Collective::all_gather, 50)).ok());
  GpuCall call = stage->call_of(0);
  call.output = nullptr;
  EXPECT_EQ(meeting->come(0, call, stage->stream(0)).code(), StatusCode::invalid_argument);
  expect_copied(meet_all(*meeting, *stage));
}

TEST(CopyMeeting, NamesARankThatNeverComes) {
  HostDevice device;
  GpuOptions options = small_options();
  options.timeout = std::chrono::milliseconds(50);
  const auto stage = make_stage(device, 3, options);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  ASSERT_TRUE(stage->set(movement(Collective::all_gather, 50)).ok());
  for (const Rank rank : {0, 2})
    ASSERT_TRUE(meeting->come(rank, stage->call_of(rank), stage->stream(rank)).ok());
  const Met met = meeting->wait(2);
  EXPECT_EQ(met.status.code(), StatusCode::timeout);
  EXPECT_EQ(met.status.culprit(), 1);
  EXPECT_THAT(met.status.message(), HasSubstr("rank 1 is missing"));
  EXPECT_EQ(meeting->wait(0).status.culprit(), 1);
  // It stays so, for who comes late, too; and nothing was enqueued.
  EXPECT_EQ(meeting->come(1, stage->call_of(1), stage->stream(1)).code(), StatusCode::timeout);
  EXPECT_TRUE(*device.reached(stage->stream(0)));
}

TEST(CopyMeeting, AnAbortEndsTheWait) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  ASSERT_TRUE(stage->set(movement(Collective::all_gather, 50)).ok());
  ASSERT_TRUE(meeting->come(0, stage->call_of(0), stage->stream(0)).ok());
  std::thread aborter([&] { meeting->abort(Status(StatusCode::aborted, "enough", 1)); });
  EXPECT_EQ(meeting->wait(0).status.code(), StatusCode::aborted);
  aborter.join();
  EXPECT_EQ(meeting->come(1, stage->call_of(1), stage->stream(1)).code(), StatusCode::aborted);
}

// The others wait for its next call.
TEST(CopyMeeting, WhoWithdrawsMayComeAgain) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const auto meeting = meeting_of(*stage);
  ASSERT_TRUE(stage->set(movement(Collective::all_gather, 50)).ok());
  ASSERT_TRUE(meeting->come(0, stage->call_of(0), stage->stream(0)).ok());
  meeting->withdraw(0);
  ASSERT_TRUE(meeting->come(1, stage->call_of(1), stage->stream(1)).ok());
  EXPECT_FALSE(meeting->look(1));
  ASSERT_TRUE(meeting->come(0, stage->call_of(0), stage->stream(0)).ok());
  for (const Rank rank : {0, 1}) EXPECT_TRUE(meeting->look(rank)->copied);
  ASSERT_TRUE(stage->synchronize().ok());
  EXPECT_TRUE(stage->judge().ok());
}

}  // namespace
}  // namespace tutti::runtime::gpu

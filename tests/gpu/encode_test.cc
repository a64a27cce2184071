// What is encoded, what is refused, and that a device cuts blocks as the host does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "collectives/algorithms/table.hpp"
#include "collectives/geometry.hpp"
#include "collectives/lowering.hpp"
#include "runtime/gpu/device_cut.hpp"
#include "runtime/gpu/encode.hpp"
#include "runtime/gpu/encode_order.hpp"

namespace tutti::runtime::gpu {
namespace {

using collectives::LoweredOperand;
using collectives::LoweredProgram;
using collectives::LoweredStep;
using ::testing::HasSubstr;

std::vector<LoweredProgram> lowered(Collective collective, std::string_view name, int ranks) {
  const auto algorithm = collectives::find_algorithm(collective, name);
  return collectives::lower_all(*build(**algorithm, ranks, 0));
}

TEST(Encode, EveryStepIsThereOnceAndGrantsStandBefore) {
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms())
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const auto schedule = build(algorithm, ranks, 0, ranks == 8 ? 4 : 1);
      if (!schedule.ok()) continue;
      const auto programs = collectives::lower_all(*schedule);
      const auto order = order_events(programs);
      ASSERT_TRUE(order.ok()) << algorithm.name << order.status().to_string();
      for (std::size_t rank = 0; rank < programs.size(); ++rank) {
        std::set<std::int32_t> granted;
        std::set<std::int32_t> done;
        for (const Event& event : (*order)[rank]) {
          if (event.grants) {
            EXPECT_FALSE(done.contains(event.step));
            EXPECT_TRUE(granted.insert(event.step).second);
          } else {
            for (const auto& dependency :
                 programs[rank].steps[static_cast<std::size_t>(event.step)].depends)
              EXPECT_TRUE(done.contains(dependency.step));
            EXPECT_TRUE(done.insert(event.step).second);
          }
        }
        EXPECT_EQ(done.size(), programs[rank].steps.size());
      }
    }
}

// In the one-pass all_reduce everybody stores into everybody in one step: who granted only when it
// comes to receiving would wait for a peer that waits for it.
TEST(Encode, MemoryIsGrantedBeforeWhatThePeersWaitFor) {
  const auto programs = encode(lowered(Collective::all_reduce, "direct", 4));
  ASSERT_TRUE(programs.ok());
  const ProgramHeader& header = (*programs)[0].header();
  int grants = 0;
  for (std::uint32_t i = 0; header.instructions()[i].kind != InstructionKind::reduce; ++i)
    grants += header.instructions()[i].kind == InstructionKind::grant ? 1 : 0;
  EXPECT_EQ(grants, 3);
  EXPECT_EQ(header.instructions()[header.instruction_count - 1].kind, InstructionKind::await);
  EXPECT_LE(header.bytes, (*programs)[0].bytes().size());
  EXPECT_LT((*programs)[0].bytes().size() - header.bytes, sizeof(std::uint64_t));
}

TEST(Encode, StepsThatWaitForEachOtherAreRefused) {
  std::vector<LoweredProgram> programs;
  for (const Rank rank : {0, 1}) {
    LoweredProgram& program =
        programs.emplace_back(collectives::lower_point_to_point(2, rank, 1 - rank, 1 - rank));
    ASSERT_EQ(program.steps.size(), 2u);
    std::swap(program.steps[0], program.steps[1]);  // both receive before they send
    program.steps[1].depends = {{0, false}};
  }
  const auto encoded = encode(programs);
  ASSERT_FALSE(encoded.ok());
  EXPECT_EQ(encoded.status().code(), StatusCode::unsupported);
  EXPECT_THAT(encoded.status().message(), HasSubstr("waits for what waits for it"));
}

TEST(Encode, WhatADeviceDoesNotDoIsRefused) {
  auto ordered = lowered(Collective::all_reduce, "direct", 5);
  for (LoweredProgram& program : ordered) program = collectives::in_rank_order(program);
  const auto tree = encode(ordered);
  ASSERT_FALSE(tree.ok());
  EXPECT_THAT(tree.status().message(), HasSubstr("folds 5 sources along a tree"));

  const auto wide = encode(lowered(Collective::all_reduce, "direct", 81));
  ASSERT_FALSE(wide.ok());
  EXPECT_THAT(wide.status().message(), HasSubstr("has 162 operands"));
}

TEST(Encode, SmallTreesAreChains) {
  auto ordered = lowered(Collective::all_reduce, "direct", 3);
  for (LoweredProgram& program : ordered) program = collectives::in_rank_order(program);
  EXPECT_TRUE(encode(ordered).ok());
}

TEST(DeviceCut, IsThatOfTheHost) {
  for (const std::size_t count : {0UL, 1UL, 7UL, 1009UL, 123456789UL, 5'000'000'000UL})
    for (const int chunks : {1, 2, 9})
      for (const int channels : {1, 3})
        for (const std::size_t slices : {1UL, 2UL, 77UL}) {
          const collectives::Geometry host(count, chunks, channels, slices);
          for (int channel = 0; channel < channels; ++channel)
            for (int chunk = 0; chunk < 2 * chunks; ++chunk) {
              const Cut cut{count, slices, static_cast<std::uint32_t>(chunks),
                            static_cast<std::uint32_t>(channels),
                            static_cast<std::uint32_t>(channel)};
              const std::size_t slice = slices - 1;
              const Range range = cut.of(static_cast<std::uint32_t>(chunk), slice);
              EXPECT_EQ(range.begin, host.of(chunk, channel, slice).begin);
              EXPECT_EQ(range.count, host.of(chunk, channel, slice).count);
            }
        }
}

TEST(DeviceCut, EveryMessageFitsItsSlot) {
  const auto programs = encode(lowered(Collective::all_to_all, "bruck", 9));
  const ProgramHeader& program = (*programs)[0].header();
  const ControlShape shape{9, 2, 2, 512, 256};
  for (const std::uint64_t count : {0UL, 1UL, 1000UL, 100'003UL})
    for (const std::uint32_t bytes : {1U, 2U, 4U, 8U})
      for (const Protocol protocol : {Protocol::simple, Protocol::low_latency}) {
        Cut cut{count, slices_needed(program, shape, count, bytes, 2, protocol), program.chunks, 2,
                1};
        ASSERT_GT(cut.slices, 0u);
        const bool flagged = protocol == Protocol::low_latency;
        const std::uint64_t unit = flagged ? kUnitBytes : kVectorBytes;
        std::uint64_t most = 0;
        for (std::uint64_t slice = 0; slice < cut.slices; ++slice)
          most = std::max(most, cut.of(0, slice).count);
        EXPECT_LE(ceil_div(most * bytes, unit) * unit * program.message_chunks_max,
                  flagged ? shape.flagged_bytes : shape.slot_bytes);
      }
}

TEST(DeviceCut, SmallCallsTakeTheWayOfLowLatency) {
  const auto programs = encode(lowered(Collective::all_reduce, "ring", 4));
  const ProgramHeader& program = (*programs)[0].header();
  const ControlShape shape{4, 1, 4, 1 << 16, 1 << 12};
  EXPECT_EQ(protocol_for(program, shape, 16, 4, 1), Protocol::low_latency);
  EXPECT_EQ(protocol_for(program, shape, 1 << 20, 4, 1), Protocol::simple);
}

}  // namespace
}  // namespace tutti::runtime::gpu

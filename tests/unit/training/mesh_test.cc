// mesh_test.cc: that ranks and places are one to one, that groups partition the world, and that
// degrees which do not fit are refused with the equation.
#include "training/plan/mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mesh must_make(const MeshOptions& options, int world) {
  Result<Mesh> mesh = make_mesh(options, world);
  EXPECT_TRUE(mesh.ok()) << mesh.status().to_string();
  return mesh.ok() ? *mesh : Mesh{};
}

std::string error_of(const MeshOptions& options, int world) {
  const Result<Mesh> mesh = make_mesh(options, world);
  EXPECT_FALSE(mesh.ok());
  return mesh.status().to_string();
}

// Worlds of the size of a workstation, and of published runs: 1024 = 4 x 8 x 8 x 4 as tp 8, pp 4,
// dp 32 of which experts borrow 4; 16384 = 8 x 16 x 128 as Llama 3's pre-training.
std::vector<Mesh> meshes() {
  std::vector<Mesh> made;
  for (const MeshOrder order : {MeshOrder::pipeline_outermost, MeshOrder::data_outermost}) {
    made.push_back(must_make({.order = order}, 1));
    made.push_back(must_make({.pp = 2, .dp_shard = 2, .tp = 2, .order = order}, 8));
    made.push_back(must_make({.pp = 4, .dp_replicate = 2, .dp_shard = 1, .order = order}, 8));
    made.push_back(must_make(
        {.pp = 3, .dp_replicate = 2, .dp_shard = 3, .ep = 2, .experts = 8, .order = order}, 18));
    made.push_back(must_make({.pp = 8, .tp = 8, .order = order}, 64));
    made.push_back(must_make(
        {.pp = 4, .dp_replicate = 4, .tp = 8, .ep = 4, .experts = 8, .order = order}, 1024));
    made.push_back(must_make({.pp = 16, .dp_replicate = 2, .tp = 8, .order = order}, 16384));
  }
  return made;
}

TEST(MeshTest, RanksAndPlacesAreOneToOne) {
  for (const Mesh& mesh : meshes()) {
    std::set<int> seen;
    Coordinates at;
    for (at.pp = 0; at.pp < mesh.pp; ++at.pp)
      for (at.dp_replicate = 0; at.dp_replicate < mesh.dp_replicate; ++at.dp_replicate)
        for (at.dp_shard = 0; at.dp_shard < mesh.dp_shard; ++at.dp_shard)
          for (at.tp = 0; at.tp < mesh.tp; ++at.tp) {
            const int rank = rank_of(mesh, at);
            ASSERT_TRUE(seen.insert(rank).second) << mesh.to_string() << " rank " << rank;
            ASSERT_EQ(coordinates_of(mesh, rank), at) << mesh.to_string();
          }
    EXPECT_EQ(static_cast<int>(seen.size()), mesh.world());
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), mesh.world() - 1);
  }
}

TEST(MeshTest, ThePipelineIsOutermostByDefault) {
  const Mesh mesh = must_make({.pp = 2, .dp_replicate = 3, .dp_shard = 5, .tp = 7}, 210);
  EXPECT_EQ(rank_of(mesh, {1, 2, 3, 4}), ((1 * 3 + 2) * 5 + 3) * 7 + 4);
}

// Llama 3 (2024), figure 5: 16 GPUs with [TP, CP, PP, DP] = [2, 2, 2, 2] from the inside out: GPU0
// and 1 share a TP group, 0 and 2 one of CP, 0 and 4 one of PP, 0 and 8 one of DP. Without CP what
// is outside it moves in by a factor of 2.
TEST(MeshTest, DataOutermostIsTheOrderOfLlama3) {
  const Mesh mesh =
      must_make({.pp = 2, .dp_shard = 2, .tp = 2, .order = MeshOrder::data_outermost}, 8);
  EXPECT_THAT(group_members(mesh, MeshAxis::tp, 0), ElementsAre(0, 1));
  EXPECT_THAT(group_members(mesh, MeshAxis::pp, 0), ElementsAre(0, 2));
  EXPECT_THAT(group_members(mesh, MeshAxis::dp, 0), ElementsAre(0, 4));
}

// Llama 3, table 4: TP 8, CP 1, PP 16, DP 128 on 16,384 GPUs with 8 in each node.
TEST(MeshTest, TensorParallelGroupsStayInANode) {
  for (const Mesh& mesh : meshes()) {
    if (mesh.tp != 8) continue;
    for (int rank = 0; rank < mesh.world(); ++rank)
      for (const int member : group_members(mesh, MeshAxis::tp, rank))
        ASSERT_EQ(member / 8, rank / 8) << mesh.to_string();
  }
}

// What a communicator's split does: ranks of one color, ordered by key.
std::map<int, std::map<int, int>> split_world(const Mesh& mesh, MeshAxis axis) {
  std::map<int, std::map<int, int>> groups;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const GroupSplit split = group_split(mesh, axis, rank);
    if (split.color < 0) continue;
    EXPECT_TRUE(groups[split.color].emplace(split.key, rank).second)
        << "two ranks of one color and key";
  }
  return groups;
}

TEST(MeshTest, SplittingTheWorldGivesTheGroups) {
  for (const Mesh& mesh : meshes()) {
    for (const MeshAxis axis : kMeshAxes) {
      std::size_t ranks = 0;
      for (const auto& [color, group] : split_world(mesh, axis)) {
        std::vector<int> members;
        for (const auto& [key, rank] : group) members.push_back(rank);
        ranks += members.size();
        EXPECT_EQ(static_cast<int>(members.size()), group_size(mesh, axis)) << to_string(axis);
        EXPECT_EQ(members.front(), color);
        for (const int rank : {members.front(), members.back()})
          ASSERT_EQ(group_members(mesh, axis, rank), members)
              << mesh.to_string() << " along " << to_string(axis);
      }
      const bool all = axis != MeshAxis::embedding || mesh.pp <= 2;
      const int stages = all ? mesh.pp : 2;
      EXPECT_EQ(ranks, static_cast<std::size_t>(mesh.world() / mesh.pp * stages));
    }
  }
}

// Two axes meet in one rank where one is across the other, which is what lets a reduction over
// both be done one after the other.
TEST(MeshTest, ExpertAndExpertDataGroupsAreAcrossEachOther) {
  for (const Mesh& mesh : meshes()) {
    ASSERT_EQ(mesh.ep * mesh.edp(), mesh.dp());
    for (int rank = 0; rank < mesh.world(); rank += 7) {
      std::set<int> reached;
      for (const int peer : group_members(mesh, MeshAxis::ep, rank))
        for (const int other : group_members(mesh, MeshAxis::edp, peer)) reached.insert(other);
      const std::vector<int> dp = group_members(mesh, MeshAxis::dp, rank);
      EXPECT_EQ(reached, std::set<int>(dp.begin(), dp.end()));
    }
  }
}

TEST(MeshTest, ExpertGroupsAreConsecutiveDataRanks) {
  const Mesh mesh =
      must_make({.dp_replicate = 2, .dp_shard = 4, .tp = 2, .ep = 4, .experts = 8}, 16);
  EXPECT_THAT(group_members(mesh, MeshAxis::ep, 0), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(group_members(mesh, MeshAxis::ep, 9), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(group_members(mesh, MeshAxis::edp, 2), ElementsAre(2, 10));
  EXPECT_EQ(group_split(mesh, MeshAxis::ep, 13), (GroupSplit{9, 2}));
}

TEST(MeshTest, MiddleStagesAreInNoEmbeddingGroup) {
  const Mesh mesh = must_make({.pp = 4, .dp_shard = 2}, 8);
  EXPECT_THAT(group_members(mesh, MeshAxis::embedding, 1), ElementsAre(1, 7));
  EXPECT_THAT(group_members(mesh, MeshAxis::embedding, 7), ElementsAre(1, 7));
  EXPECT_TRUE(group_members(mesh, MeshAxis::embedding, 3).empty());
  EXPECT_EQ(group_split(mesh, MeshAxis::embedding, 3).color, -1);
}

TEST(MeshTest, OneDegreeMayBeTheRest) {
  EXPECT_EQ(must_make({.pp = 2, .tp = 4}, 64).dp_shard, 8);
  EXPECT_EQ(must_make({.dp_replicate = -1, .dp_shard = 4, .tp = 4}, 64).dp_replicate, 4);
  EXPECT_EQ(must_make({.pp = -1, .dp_shard = 4, .tp = 4}, 64).pp, 4);
  EXPECT_EQ(must_make({.dp_shard = 2, .tp = -1}, 2).tp, 1);
}

TEST(MeshTest, AWorldThatDoesNotFactorIsRefusedWithTheEquation) {
  EXPECT_THAT(
      error_of({.pp = 2, .dp_shard = 3, .tp = 2}, 8),
      HasSubstr("pp 2 x dp_replicate 1 x dp_shard 3 x tp 2 = 12, but the world has 8 ranks"));
  EXPECT_THAT(error_of({.tp = 3}, 8), HasSubstr("does not divide the world of 8 ranks"));
  EXPECT_THAT(error_of({.tp = 16}, 8), HasSubstr("tp 16"));
  EXPECT_THAT(error_of({.pp = -1}, 8), HasSubstr("both pp and dp_shard are -1"));
  EXPECT_THAT(error_of({.tp = 0}, 8), HasSubstr("tp is 0"));
  EXPECT_THAT(error_of({.tp = -2}, 8), HasSubstr("tp is -2"));
  EXPECT_THAT(error_of({.cp = 2}, 8), HasSubstr("cp is 2"));
  EXPECT_THAT(error_of({}, 0), HasSubstr("not 0"));
  const int huge = 1 << 30;
  EXPECT_THAT(error_of({.pp = huge, .dp_replicate = huge, .dp_shard = huge, .tp = huge}, 8),
              HasSubstr("but the world has 8 ranks"));
}

// Llama 3, table 4, row 3: the first print had TP 8, CP 16, PP 16, DP 4 for 16,384 GPUs, a later
// one DP 8. With CP's ranks counted as shards, only the later one is a world.
TEST(MeshTest, ATableThatDoesNotMultiplyOutIsRefused) {
  EXPECT_THAT(error_of({.pp = 16, .dp_replicate = 4, .dp_shard = 16, .tp = 8}, 16384),
              HasSubstr("= 8192, but the world has 16384 ranks"));
  EXPECT_TRUE(make_mesh({.pp = 16, .dp_replicate = 8, .dp_shard = 16, .tp = 8}, 16384).ok());
}

TEST(MeshTest, ExpertsMustDivide) {
  EXPECT_THAT(error_of({.ep = 3, .experts = 9}, 8),
              HasSubstr("ep 3 does not divide dp_replicate 1"));
  EXPECT_THAT(error_of({.ep = 4, .experts = 6}, 8), HasSubstr("the model's 6 experts"));
  EXPECT_THAT(error_of({.ep = 4}, 8), HasSubstr("has no experts"));
  EXPECT_THAT(error_of({.ep = 0}, 8), HasSubstr("ep is 0"));
}

}  // namespace
}  // namespace tutti::training

// environment_test.cc: the variables of each launcher give the right place in the world, and wrong
// ones an error that names the variable.
#include "base/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace tutti::base {
namespace {

using testing::AllOf;
using testing::HasSubstr;

long no_process() { return 0; }

Result<WorldEnvironment> world_of(const Environment& environment) {
  return world_from_environment(environment, no_process);
}

// What each launcher really sets, less what nobody reads.
Environment torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "29500"}};
}
Environment open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_NAMESPACE", "2859139073"},    {"OMPI_MCA_ess_base_jobid", "2859139073"}};
}
Environment mpich() {
  return {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
}
Environment slurm() {
  return {{"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "9"},
          {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},         {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "gpu[003-004]"},
          {"SLURM_JOB_ID", "1234"},      {"SLURM_STEP_ID", "0"}};
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

void expect_error(const Environment& environment, const std::string& name,
                  const std::string& text) {
  const auto world = world_of(environment);
  ASSERT_FALSE(world.ok()) << name << ", " << text;
  EXPECT_EQ(world.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(world.status().message(), AllOf(HasSubstr(name), HasSubstr(text)));
}

TEST(World, WithoutLauncherIsOneRank) {
  const auto world = world_of({{"PATH", "/bin"}, {"MASTER_PORT", "1"}});
  ASSERT_TRUE(world.ok());
  EXPECT_EQ(*world, (WorldEnvironment{0, 1, 0, 1, "", 0, "no launcher"}));
}

TEST(World, Torchrun) {
  const auto world = world_of(torchrun());
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(*world, (WorldEnvironment{3, 8, 1, 2, "node7", 29500, "RANK and WORLD_SIZE"}));
}

TEST(World, LocalRankMayBeUnknown) {
  const auto world = world_of(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}});
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->local_rank, -1);
  EXPECT_EQ(world->local_size, -1);
}

TEST(World, OneRankNeedsNoMeetingPoint) {
  const auto world = world_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->world_size, 1);
}

TEST(World, OpenMpiOnOneHost) {
  const auto world = world_of(open_mpi());
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->world_size, 4);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 4);
  EXPECT_EQ(world->master_address, "127.0.0.1");
  EXPECT_EQ(world->source, "Open MPI");
}

TEST(World, PortFollowsFromTheJob) {
  const int port = world_of(open_mpi())->master_port;
  EXPECT_GE(port, 16384);
  EXPECT_LT(port, 32768);
  EXPECT_EQ(world_of(with(open_mpi(), "OMPI_COMM_WORLD_RANK", "2"))->master_port, port);
  EXPECT_NE(world_of(with(open_mpi(), "PMIX_NAMESPACE", "2859204609"))->master_port, port);
  EXPECT_EQ(world_of(with(open_mpi(), "MASTER_PORT", "777"))->master_port, 777);
  // The older name of the job serves where the newer is missing.
  EXPECT_EQ(world_of(with(open_mpi(), "PMIX_NAMESPACE", ""))->master_port, port);
}

TEST(World, OpenMpiOnSeveralHostsNeedsMasterAddress) {
  const Environment several = with(open_mpi(), "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  expect_error(several, "MASTER_ADDR", "Open MPI");
  const auto world = world_of(with(several, "MASTER_ADDR", "node1"));
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->master_address, "node1");
  EXPECT_EQ(world->master_port, world_of(open_mpi())->master_port);
}

TEST(World, MpichOnOneHostMeetsByItsDaemon) {
  const auto world = world_from_environment(mpich(), [] { return 4711L; });
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->source, "MPICH");
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->world_size, 2);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->master_address, "127.0.0.1");
  EXPECT_NE(world->master_port, world_from_environment(mpich(), [] { return 4712L; })->master_port);
}

TEST(World, MpichWithoutDaemonSaysWhatToSet) { expect_error(mpich(), "MASTER_PORT", "MPICH"); }

TEST(World, SlurmKnowsItsFirstHost) {
  const auto world = world_of(slurm());
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->source, "Slurm");
  EXPECT_EQ(world->rank, 5);
  EXPECT_EQ(world->world_size, 8);  // of the step, not of the job
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 4);
  EXPECT_EQ(world->master_address, "gpu003");
  EXPECT_NE(world->master_port, world_of(with(slurm(), "SLURM_STEP_ID", "1"))->master_port);
}

TEST(World, SlurmHostListsAndTaskCounts) {
  const std::pair<std::string, std::string> hosts[] = {{"gpu[003-004]", "gpu003"},
                                                       {"gpu[7,9-11],x", "gpu7"},
                                                       {"login1,gpu[1-2]", "login1"},
                                                       {"solo", "solo"},
                                                       {"a-b-[1-4]", "a-b-1"}};
  for (const auto& [list, first] : hosts)
    EXPECT_EQ(world_of(with(slurm(), "SLURM_STEP_NODELIST", list))->master_address, first) << list;
  const std::pair<std::string, int> counts[] = {{"4(x2)", 4}, {"5,3", 3},   {"6,2(x3),3", 2},
                                                {"8", -1},    {"what", -1}, {"", -1}};
  for (const auto& [text, size] : counts)
    EXPECT_EQ(world_of(with(slurm(), "SLURM_STEP_TASKS_PER_NODE", text))->local_size, size) << text;
}

TEST(World, SlurmOnOneHostMeetsOnLoopback) {
  EXPECT_EQ(world_of(with(slurm(), "SLURM_STEP_NUM_NODES", "1"))->master_address, "127.0.0.1");
}

TEST(World, BatchScriptOfSlurmIsNoStep) {
  const auto world = world_of(with(slurm(), "SLURM_STEP_ID", "4294967291"));
  ASSERT_TRUE(world.ok());
  EXPECT_EQ(world->source, "no launcher");
}

TEST(World, OtherPmiLaunchers) {
  const auto world = world_of({{"PMI_RANK", "2"},
                               {"PMI_SIZE", "4"},
                               {"PMI_LOCAL_RANK", "2"},
                               {"PMI_LOCAL_SIZE", "4"},
                               {"PALS_APID", "abc-1"}});
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(world->source, "PMI");
  EXPECT_EQ(world->rank, 2);
  EXPECT_GT(world->master_port, 0);
}

TEST(World, TheNearestLauncherCounts) {
  Environment all = slurm();
  all.merge(mpich());
  EXPECT_EQ(world_from_environment(all, [] { return 1L; })->source, "MPICH");
  all.merge(open_mpi());
  EXPECT_EQ(world_of(all)->source, "Open MPI");
  all.merge(torchrun());
  EXPECT_EQ(world_of(all)->source, "RANK and WORLD_SIZE");
  // Slurm may set PMI's names beside its own.
  EXPECT_EQ(world_of(with(with(slurm(), "PMI_RANK", "5"), "PMI_SIZE", "8"))->source, "Slurm");
}

TEST(World, MalformedAndContradictoryValuesNameTheVariable) {
  expect_error(with(torchrun(), "RANK", "three"), "RANK", "three");
  expect_error(with(torchrun(), "RANK", "-1"), "RANK", "-1");
  expect_error(with(torchrun(), "RANK", "8"), "RANK=8", "WORLD_SIZE=8");
  expect_error(with(torchrun(), "RANK", ""), "RANK", "not set");
  expect_error(with(torchrun(), "WORLD_SIZE", ""), "WORLD_SIZE", "not set");
  expect_error(with(torchrun(), "WORLD_SIZE", "0"), "WORLD_SIZE", "0");
  expect_error(with(torchrun(), "LOCAL_RANK", "2"), "LOCAL_RANK=2", "2 ranks on this host");
  expect_error(with(torchrun(), "LOCAL_WORLD_SIZE", "9"), "LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8");
  expect_error(with(torchrun(), "MASTER_PORT", "65536"), "MASTER_PORT", "65535");
  expect_error(with(torchrun(), "MASTER_PORT", ""), "MASTER_PORT is not set", "8 ranks");
  expect_error(with(torchrun(), "MASTER_ADDR", ""), "MASTER_ADDR is not set", "host of rank 0");
  expect_error(with(open_mpi(), "OMPI_COMM_WORLD_SIZE", "x"), "OMPI_COMM_WORLD_SIZE", "x");
  expect_error(with(slurm(), "SLURM_PROCID", "8"), "SLURM_PROCID=8", "SLURM_STEP_NUM_TASKS=8");
}

TEST(Environment, CapturesTheProcess) {
  ASSERT_EQ(setenv("TEST_OF_ENVIRONMENT", "a=b", 1), 0);
  const Environment environment = capture_environment();
  EXPECT_EQ(value_of(environment, "TEST_OF_ENVIRONMENT"), "a=b");
  EXPECT_EQ(value_of(environment, "TEST_OF_ENVIRONMENT_NOT"), "");
}

TEST(Environment, NoDaemonAboveAnOrdinaryProcess) { EXPECT_EQ(find_launcher_process(), 0); }

}  // namespace
}  // namespace tutti::base

// What NCCL_* variables become.
#include "nccl/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::nccl::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(NcclEnvironment, OfNothingChangesNothing) {
  const Settings settings = read_settings({{"PATH", "/bin"}, {"NCCL_ALGO", ""}});
  CommunicatorOptions options;
  settings.apply(options);
  EXPECT_TRUE(options.algorithm.empty());
  EXPECT_TRUE(options.transport.empty());
  EXPECT_TRUE(options.lowering.empty());
  EXPECT_FALSE(settings.log.has_value());
  EXPECT_FALSE(settings.version);
  EXPECT_FALSE(settings.blocking.has_value());
  EXPECT_THAT(settings.ignored, IsEmpty());
  EXPECT_THAT(settings.remarks, IsEmpty());
}

TEST(NcclEnvironment, SaysHowMuchIsSaid) {
  EXPECT_TRUE(read_settings({{"NCCL_DEBUG", "VERSION"}}).version);
  EXPECT_FALSE(read_settings({{"NCCL_DEBUG", "VERSION"}}).log.has_value());
  EXPECT_EQ(read_settings({{"NCCL_DEBUG", "WARN"}}).log, base::LogLevel::warn);
  EXPECT_EQ(read_settings({{"NCCL_DEBUG", "info"}}).log, base::LogLevel::info);
  EXPECT_EQ(read_settings({{"NCCL_DEBUG", "TRACE"}}).log, base::LogLevel::debug);
  EXPECT_TRUE(read_settings({{"NCCL_DEBUG", "INFO"}}).version);
  const Settings wrong = read_settings({{"NCCL_DEBUG", "LOUD"}});
  EXPECT_FALSE(wrong.version);
  EXPECT_THAT(wrong.remarks, ElementsAre(HasSubstr("NCCL_DEBUG=LOUD")));
}

TEST(NcclEnvironment, ForcesTheAlgorithmThatIsLeft) {
  EXPECT_EQ(read_settings({{"NCCL_ALGO", "Ring"}}).algorithm, "ring");
  EXPECT_EQ(read_settings({{"NCCL_ALGO", "TREE,NVLS"}}).algorithm, "tree");
  EXPECT_EQ(read_settings({{"NCCL_ALGO", "^tree"}}).algorithm, "ring");
  EXPECT_EQ(read_settings({{"NCCL_ALGO", "^ring,pat"}}).algorithm, "tree");
  EXPECT_EQ(read_settings({{"NCCL_ALGO", "ring,tree"}}).algorithm, "");
  EXPECT_EQ(read_settings({{"NCCL_ALGO", "^nvls"}}).algorithm, "");
  const Settings other = read_settings({{"NCCL_ALGO", "NVLS"}});
  EXPECT_EQ(other.algorithm, "");
  EXPECT_THAT(other.remarks, ElementsAre(HasSubstr("neither Ring nor Tree")));
  const Settings single = read_settings({{"NCCL_ALGO", "allreduce:tree;broadcast:ring"}});
  EXPECT_EQ(single.algorithm, "");
  EXPECT_THAT(single.remarks, ElementsAre(HasSubstr("single collectives")));
}

TEST(NcclEnvironment, SaysWhatNetworkCardsMayDo) {
  using Choice = base::GpuDirectChoice;
  for (const char* const level : {"0", "LOC", "loc"})
    EXPECT_EQ(read_settings({{"NCCL_NET_GDR_LEVEL", level}}).gpu_direct, Choice::off);
  for (const char* const level : {"1", "5", "PIX", "sys"}) {
    const Settings settings = read_settings({{"NCCL_NET_GDR_LEVEL", level}});
    EXPECT_EQ(settings.gpu_direct, Choice::automatic);
    EXPECT_THAT(settings.remarks, IsEmpty());
    EXPECT_THAT(settings.ignored, IsEmpty());
  }
  EXPECT_THAT(read_settings({{"NCCL_NET_GDR_LEVEL", "near"}}).remarks,
              ElementsAre(HasSubstr("expected LOC, PIX")));
  EXPECT_EQ(read_settings({{"NCCL_NET_GDR_READ", "0"}}).gpu_direct, Choice::receive);
  EXPECT_EQ(read_settings({{"NCCL_NET_GDR_READ", "1"}}).gpu_direct, Choice::automatic);
  EXPECT_EQ(read_settings({{"NCCL_NET_GDR_LEVEL", "LOC"}, {"NCCL_NET_GDR_READ", "0"}}).gpu_direct,
            Choice::off);
}

TEST(NcclEnvironment, DisablesTransports) {
  EXPECT_EQ(read_settings({{"NCCL_SHM_DISABLE", "1"}}).transport, "tcp");
  EXPECT_EQ(read_settings({{"NCCL_SHM_DISABLE", "0"}}).transport, "");
  EXPECT_EQ(read_settings({{"NCCL_P2P_DISABLE", "1"}}).lowering, "staged");
  EXPECT_EQ(read_settings({{"NCCL_P2P_DISABLE", "0"}}).lowering, "");
  EXPECT_THAT(read_settings({{"NCCL_P2P_DISABLE", "yes"}}).remarks,
              ElementsAre("NCCL_P2P_DISABLE=yes: expected 0 or 1"));
}

TEST(NcclEnvironment, LeavesWhatTheProgramChose) {
  const Settings settings =
      read_settings({{"NCCL_ALGO", "ring"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_P2P_DISABLE", "1"}});
  CommunicatorOptions options;
  options.algorithm = "tree";
  settings.apply(options);
  EXPECT_EQ(options.algorithm, "tree");
  EXPECT_EQ(options.transport, "tcp");
  EXPECT_EQ(options.lowering, "staged");
}

TEST(NcclEnvironment, ListsWhatHasNoMeaningHere) {
  const Settings settings = read_settings({{"NCCL_IB_HCA", "mlx5"},
                                           {"NCCL_NET_PLUGIN", "none"},
                                           {"NCCL_TESTS_DEVICE", "0"},
                                           {"NCCL_SOCKET_IFNAME", "lo"},
                                           {"NCCL_TOPO_FILE", "t.xml"},
                                           {"NCCL_TOPO_DUMP_FILE", "u.txt"},
                                           {"NCCL_TOPO_DUMP_FILE_RANK", "3"},
                                           {"NCCL_COMM_BLOCKING", "0"},
                                           {"NCCL_BUFFSIZE", "1"}});
  EXPECT_THAT(settings.ignored, ElementsAre("NCCL_BUFFSIZE", "NCCL_IB_HCA"));
  EXPECT_EQ(settings.interfaces, "lo");
  EXPECT_EQ(settings.topology_file, "t.xml");
  EXPECT_EQ(settings.topology_dump_file, "u.txt");
  EXPECT_EQ(settings.topology_dump_rank, 3);
  EXPECT_EQ(settings.blocking, false);
}

}  // namespace
}  // namespace tutti::nccl::test

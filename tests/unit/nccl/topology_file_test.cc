// How ranks come to one description of their machines, and who is told what.
#include "nccl/topology_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "unit/topology/files.hpp"
#include "unit/topology/nccl_machine.hpp"

namespace tutti::nccl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A log that can be read.
class Notes {
 public:
  explicit Notes(base::LogLevel level = base::LogLevel::warn)
      : file_(::memfd_create("log", MFD_CLOEXEC)), log_(level, "test", file_) {}
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;
  ~Notes() { ::close(file_); }

  const base::Log& log() const { return log_; }
  std::string text() const {
    std::string read(4096, '\0');
    const ssize_t bytes = ::pread(file_, read.data(), read.size(), 0);
    read.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return read;
  }

 private:
  int file_;
  base::Log log_;
};

// A GPU at 0000:01:00.0 and so on, each on a bus so fast.
Description description_of(int gpus, double bandwidth) {
  TopologyBuilder builder;
  builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  const VertexId numa = builder.add_vertex({VertexKind::numa, "n0/numa0", VertexId{0}, {}});
  for (int i = 0; i < gpus; ++i) {
    const VertexId gpu =
        builder.add_vertex({VertexKind::gpu,
                            "n0/gpu" + std::to_string(i),
                            numa,
                            {{"pci", "0000:0" + std::to_string(i + 1) + ":00.0"}}});
    builder.connect(LinkKind::pcie, numa, gpu, 100, bandwidth, LinkSource::reported);
  }
  return {to_text(std::move(builder).build().value())};
}

struct Outcome {
  AgreedTopology topology;
  std::string said;
};

// Of ranks on these hosts, the first on GPU 0 of its host, the second on GPU 1; with these files.
std::vector<Outcome> agree(const std::vector<int>& hosts, const std::vector<Description>& own) {
  std::vector<DescribedRank> ranks;
  std::map<int, int> gpus;
  for (std::size_t rank = 0; rank < own.size(); ++rank)
    ranks.push_back(
        {hosts[rank], "0000:0" + std::to_string(++gpus[hosts[rank]]) + ":00.0", own[rank].hash()});
  auto communicators = Communicator::for_threads(static_cast<int>(own.size())).value();
  std::vector<Outcome> outcomes(own.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < own.size(); ++rank)
    threads.emplace_back([&, rank] {
      const Notes notes;
      auto agreed = agree_on_topology(communicators[rank], own[rank], ranks, notes.log());
      EXPECT_TRUE(agreed.ok()) << agreed.status().to_string();
      if (agreed.ok()) outcomes[rank] = {*agreed, notes.text()};
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

double bandwidth_of(const Outcome& outcome, std::size_t a, std::size_t b) {
  const auto& [topology, placement] = *outcome.topology;
  return find_path(topology, placement[a], placement[b])->bandwidth;
}

void expect_equal(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    ASSERT_NE(outcome.topology, nullptr) << outcome.said;
    EXPECT_EQ(outcome.topology->topology, outcomes[0].topology->topology);
    EXPECT_EQ(outcome.topology->placement, outcomes[0].topology->placement);
  }
}

TEST(NcclTopologyFile, IsUsedWhereAllHaveIt) {
  const auto outcomes = agree({0, 0, 0}, std::vector(3, description_of(4, 30)));
  expect_equal(outcomes);
  EXPECT_EQ(bandwidth_of(outcomes[2], 0, 2), 30);
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.said, "");
}

TEST(NcclTopologyFile, OfTheFirstRankCountsForItsHost) {
  const auto outcomes =
      agree({0, 0, 0}, {description_of(4, 30), description_of(4, 60), Description{}});
  expect_equal(outcomes);
  EXPECT_EQ(bandwidth_of(outcomes[1], 0, 2), 30);
  EXPECT_EQ(outcomes[0].said, "");
  EXPECT_THAT(outcomes[1].said,
              AllOf(HasSubstr("rank 1"), HasSubstr("to rank 0 of the same host")));
  EXPECT_EQ(outcomes[2].said, "");
}

TEST(NcclTopologyFile, OfEveryHostIsItsOwn) {
  const Description a = description_of(2, 30);
  const Description b = description_of(3, 60);
  const auto outcomes = agree({1, 0, 1, 0}, {a, b, a, b});
  expect_equal(outcomes);
  EXPECT_EQ(bandwidth_of(outcomes[0], 0, 2), 30);
  EXPECT_EQ(bandwidth_of(outcomes[0], 1, 3), 60);
  EXPECT_EQ(bandwidth_of(outcomes[0], 0, 1), 5);
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.said, "");
}

TEST(NcclTopologyFile, IsNotUsedWhereAHostHasNone) {
  const Description a = description_of(2, 30);
  for (const auto& outcomes : {agree({0, 1}, {a, {}}), agree({0, 0}, {{}, a})})
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.topology, nullptr);
  EXPECT_THAT(agree({0, 1}, {a, {}})[0].said, HasSubstr("rank 1, the first of its host, has none"));
  EXPECT_EQ(agree({0, 1}, {a, {}})[1].said, "");
  for (const Outcome& outcome : agree({0, 0}, {{}, {}})) {
    EXPECT_EQ(outcome.topology, nullptr);
    EXPECT_EQ(outcome.said, "");
  }
}

TEST(NcclTopologyFile, IsNotUsedWhereAGpuIsMissing) {
  for (const Outcome& outcome : agree({0, 0}, std::vector(2, description_of(1, 30)))) {
    EXPECT_EQ(outcome.topology, nullptr);
    EXPECT_THAT(outcome.said, HasSubstr("rank 1's GPU at 0000:02:00.0 is not described"));
  }
}

TEST(NcclTopologyFile, ServesRanksOfOneProcess) {
  const Notes notes;
  const std::vector<std::string> bus_ids{"0000:02:00.0", "0000:01:00.0"};
  const auto used = topology_of_process(description_of(2, 30), bus_ids, notes.log());
  ASSERT_NE(used, nullptr);
  EXPECT_EQ(used->topology.vertex(used->placement[0]).name, "n0/gpu1");
  EXPECT_EQ(topology_of_process({}, bus_ids, notes.log()), nullptr);
  EXPECT_EQ(notes.text(), "");
  EXPECT_EQ(topology_of_process(description_of(1, 30), bus_ids, notes.log()), nullptr);
  EXPECT_THAT(notes.text(), HasSubstr("not described"));
}

TEST(NcclTopologyFile, IsReadOrWarnedOf) {
  const testing::TempDir dir;
  const Notes silent;
  EXPECT_EQ(read_description("", silent.log()).hash(), 0U);
  const std::string good = dir.write("good.xml", testing::kNcclMachineXml);
  const Description read = read_description(good, silent.log());
  EXPECT_NE(read.hash(), 0U);
  EXPECT_EQ(*topology_from_text(read.text), *load_topology(good));
  EXPECT_EQ(silent.text(), "");
  const std::pair<std::string, const char*> wrong[] = {
      {dir.path() + "/none", "there is no such file"},
      {dir.write("a", "<system version=\"1\"/>"), "has no <cpu>"},
      {dir.write("b", "<system version=\"1\"><cpu/></system>"), "has no GPU"},
      {dir.write("c", "nonsense"), "c: "},
  };
  for (const auto& [path, what] : wrong) {
    const Notes notes;
    EXPECT_EQ(read_description(path, notes.log()).hash(), 0U);
    EXPECT_THAT(notes.text(), AllOf(HasSubstr("warn"), HasSubstr("all goes on without it"),
                                    HasSubstr(path), HasSubstr(what)));
  }
}

}  // namespace
}  // namespace tutti::nccl::test

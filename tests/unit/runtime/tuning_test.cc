// Files of tuning tables: where they lie, what is wrong with some, and that all ranks of a
// communicator plan by one table or by none.
#include "runtime/tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/machine.hpp"
#include "processes.hpp"
#include "runtime/host.hpp"
#include "runtime/planning_topology.hpp"

namespace tutti::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A folder of its own for each test, and TUTTI_TUNING_FILE as it was.
class TuningFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "tutti-tuning-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    unsetenv("TUTTI_TUNING_FILE");
    setenv("XDG_CACHE_HOME", "/nonexistent/tutti-tests", 1);
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)) << text;
    return path(name);
  }

  std::string folder_;
};

// Two ranks of this machine all_reduce 4 KiB as nobody would.
std::string odd_table(const std::string& slice, const std::string& machine = base::machine_kind()) {
  return "tutti-tuning 1\nmachine " + machine +
         "\nplace memory ranks=2 cores=2 direct=yes\nuse all_reduce from=4096 algorithm=tree "
         "lowering=staged channels=2 slice=" +
         slice + "\nplace memory ranks=2 cores=1 direct=yes\nuse all_reduce from=4096 " +
         "algorithm=tree lowering=staged channels=2 slice=" + slice + "\n";
}

TEST_F(TuningFile, LiesInTheCacheOfTheUser) {
  const auto path = [](base::Environment environment) {
    return default_tuning_path(environment, "m");
  };
  const std::string name = "/tutti/tuning-af63e04c8601f358.txt";
  EXPECT_EQ(path({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x" + name);
  EXPECT_EQ(path({{"XDG_CACHE_HOME", "x"}, {"HOME", "/h"}}), "/h/.cache" + name);
  EXPECT_EQ(path({{"HOME", "/h"}}), "/h/.cache" + name);
  EXPECT_EQ(path({}), "");
  EXPECT_NE(default_tuning_path({{"HOME", "/h"}}, "n"), "/h/.cache" + name);
}

TEST_F(TuningFile, IsWrittenWholeAndReadBack) {
  collectives::TuningTable table;
  table.machine = base::machine_kind();
  table.places.push_back({{"shm", 2, 2, true}, {}, {}});
  const std::string file = path("a/b/table.txt");
  ASSERT_TRUE(write_tuning_file(file, table, "# by a test\n").ok());
  ASSERT_TRUE(write_tuning_file(file, table, "# by a test\n").ok());  // over the old one
  const auto tuning = read_tuning_file(file, table.machine);
  ASSERT_TRUE(tuning.ok()) << tuning.status().to_string();
  EXPECT_EQ(*tuning->table, table);
  EXPECT_EQ(tuning->hash, tuning_hash(table));
  EXPECT_EQ(tuning->source, file);
  int files = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(path("a/b")))
    ++files;
  EXPECT_EQ(files, 1);  // no draft is left
  EXPECT_EQ(write_tuning_file(file + "/below", table, "").code(), StatusCode::system_error);
  EXPECT_THAT(write_tuning_file("/proc/table", table, "").message(), HasSubstr("/proc/table"));
}

TEST_F(TuningFile, NamedOnesMustServe) {
  const base::Log log;
  base::Config config;
  const auto error = [&](const std::string& file) {
    config.tuning_file = file;
    return find_tuning(config, {}, log).status();
  };
  EXPECT_THAT(error(path("missing")).message(),
              AllOf(HasSubstr("TUTTI_TUNING_FILE"), HasSubstr("missing"), HasSubstr("No such")));
  EXPECT_THAT(error(folder_).message(), HasSubstr("directory"));
  EXPECT_EQ(error("/dev/zero").code(), StatusCode::system_error);
  const std::string bad = write("bad", odd_table("banana"));
  EXPECT_EQ(error(bad).code(), StatusCode::corrupt_data);
  EXPECT_THAT(error(bad).message(),
              AllOf(HasSubstr(bad), HasSubstr("line 4"), HasSubstr("slice=banana")));
  const std::string other = write("other", odd_table("4KiB", "a pocket calculator"));
  EXPECT_EQ(error(other).code(), StatusCode::invalid_argument);
  EXPECT_THAT(error(other).message(),
              AllOf(HasSubstr("a pocket calculator"), HasSubstr(base::machine_kind()),
                    HasSubstr("tutti tune"), HasSubstr("TUTTI_TUNING_FILE=off")));
  EXPECT_TRUE(error(write("any", odd_table("4KiB", "any"))).ok());
  EXPECT_EQ(error(write("large", std::string((4U << 20) + 1, '#'))).code(),
            StatusCode::system_error);
}

TEST_F(TuningFile, FoundOnesMayBeUseless) {
  const base::Environment environment = {{"XDG_CACHE_HOME", folder_}};
  const std::string file = default_tuning_path(environment, base::machine_kind());
  const std::string name = file.substr(folder_.size() + 1);
  const base::Log log;
  base::Config config;
  EXPECT_EQ(find_tuning(config, environment, log)->table, nullptr);
  write(name, odd_table("4KiB"));
  const auto found = find_tuning(config, environment, log);
  ASSERT_TRUE(found.ok());
  EXPECT_NE(found->table, nullptr);
  EXPECT_FALSE(found->named);
  config.tuning_file = "off";
  EXPECT_EQ(find_tuning(config, environment, log)->table, nullptr);
  config.tuning_file = "";
  for (const std::string& text : {odd_table("banana"), odd_table("4KiB", "an abacus")}) {
    write(name, text);
    ::testing::internal::CaptureStderr();
    const auto useless = find_tuning(config, environment, log);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr(file), HasSubstr("going on without it")));
    ASSERT_TRUE(useless.ok());
    EXPECT_EQ(useless->table, nullptr);
  }
}

// ---- Agreement ----

std::vector<HostCard> cards_with(std::vector<std::uint64_t> hashes) {
  std::vector<HostCard> cards;
  for (const std::uint64_t hash : hashes)
    cards.push_back({"h", {0}, "", 1, hash, "/tables/" + std::to_string(hash)});
  return cards;
}

TEST(TuningAgreement, FoundTablesAreUsedWhereAllAreEqual) {
  EXPECT_TRUE(*agree_on_tuning(cards_with({7, 7, 7}), false));
  EXPECT_FALSE(*agree_on_tuning(cards_with({7, 7, 8}), false));
  EXPECT_FALSE(*agree_on_tuning(cards_with({7, 0}), false));
  EXPECT_FALSE(*agree_on_tuning(cards_with({0, 0}), false));
  EXPECT_TRUE(*agree_on_tuning(cards_with({7}), true));
}

TEST(TuningAgreement, NamedTablesThatDifferAreAnError) {
  const auto agreed = agree_on_tuning(cards_with({7, 7, 8}), true);
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.status().code(), StatusCode::mismatch);
  EXPECT_THAT(agreed.status().message(),
              AllOf(HasSubstr("rank 0 has"), HasSubstr("rank 2 has"), HasSubstr("/tables/7"),
                    HasSubstr("/tables/8"), HasSubstr("TUTTI_TUNING_FILE")));
}

// Makes a communicator of two processes with a file each; "" for none. What each of them said.
std::array<std::string, 2> join_with(const std::array<std::string, 2>& files) {
  testing::SharedMemory memory(2 * 1024);
  Rendezvous meeting;
  meeting.size = 2;
  meeting.port = testing::free_port();
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < 2; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      meeting.rank = rank;
      setenv("TUTTI_TUNING_FILE", files[static_cast<std::size_t>(rank)].c_str(), 1);
      auto made = Communicator::from_rendezvous(meeting);
      std::string said = made.ok() ? "joined" : made.status().to_string();
      if (made.ok()) {
        const auto plan = made->explain(Collective::all_reduce, 1024, DataType::float32);
        said += plan.ok() ? ", by " + plan->chosen_by : plan.status().to_string();
        float value = 1;
        if (!made->all_reduce(std::span<float>(&value, 1), ReduceOp::sum).ok() || value != 2)
          said += ", but the sum is wrong";
        static_cast<void>(made->close());
      }
      const std::span<char> mine = memory.as<char>().subspan(static_cast<std::size_t>(rank) * 1024);
      std::snprintf(mine.data(), 1024, "%s", said.c_str());
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return {memory.as<char>().data(), memory.as<char>().data() + 1024};
}

TEST_F(TuningFile, RanksWithDifferentNamedTablesDoNotJoin) {
  const std::string a = write("a", odd_table("4KiB"));
  const std::string b = write("b", odd_table("8KiB"));
  for (const std::string& said : join_with({a, b})) {
    EXPECT_THAT(said, AllOf(HasSubstr("ranks have different tuning tables"), HasSubstr(a),
                            HasSubstr(b), HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
  // One that names a table and one that does not are configured differently.
  for (const std::string& said : join_with({a, ""})) EXPECT_THAT(said, HasSubstr("tuning named"));
}

TEST_F(TuningFile, RanksWithEqualTablesPlanByThem) {
  // The same content elsewhere is the same table.
  std::string a = odd_table("4KiB");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"place memory", "place shm"},
                                 {"channels=2", "channels=1"}})
    for (std::size_t at = 0; (at = a.find(from, at)) != std::string::npos; ++at)
      a.replace(at, from.size(), to);
  const auto said = join_with({write("a", a), write("b", a)});
  EXPECT_EQ(said[0], "joined, by measured");
  EXPECT_EQ(said[1], "joined, by measured");
  EXPECT_EQ(join_with({"off", "off"})[0], "joined, by model");
}

TEST_F(TuningFile, ThreadsAndTheirSplitsPlanByTheTable) {
  setenv("TUTTI_TUNING_FILE", write("a", odd_table("4KiB")).c_str(), 1);
  auto made = Communicator::for_threads(2);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto plan = (*made)[1].explain(Collective::all_reduce, 1024, DataType::float32);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->algorithm, "tree");
  EXPECT_EQ(plan->channels, 2);
  EXPECT_EQ(plan->slice_bytes, 4096U);
  EXPECT_EQ(plan->chosen_by, "measured");
  EXPECT_EQ(plan->measured, "-");  // the table has no time of it
  EXPECT_THAT(plan->explanation, Not(HasSubstr("model")));
  setenv("TUTTI_TUNING_FILE", path("missing").c_str(), 1);
  EXPECT_FALSE(Communicator::for_threads(2).ok());
}

TEST(TuningFigures, ReplaceTheLinksOfTheTopology) {
  collectives::TransportFigures figures;
  figures.latency_ns = 11;
  const std::vector<HostCard> cards(2, HostCard{"h", {0, 1}, ""});
  for (const bool through_memory : {true, false}) {
    const auto seen = planning_topology(cards, through_memory, &figures);
    ASSERT_TRUE(seen.ok());
    const auto path = find_path(seen->topology, seen->placement[0], seen->placement[1]);
    ASSERT_TRUE(path.ok());
    EXPECT_EQ(path->latency_ns, 22);
    for (const Hop& hop : path->hops)
      EXPECT_EQ(seen->topology.link(hop.link).source, LinkSource::measured);
    const auto usual = planning_topology(cards, through_memory);
    EXPECT_EQ(usual->topology.links()[0].bandwidth_ab, seen->topology.links()[0].bandwidth_ab);
  }
}

TEST(TuningFigures, RanksShareNoMoreCoresThanTheyNeed) {
  const std::vector<HostCard> cards = {
      {"a", {0, 1, 2, 3}, ""}, {"a", {2, 3}, ""}, {"b", {0}, ""}, {"b", {0}, ""}, {"b", {}, ""}};
  EXPECT_EQ(cores_shared(cards, 0), 2);
  EXPECT_EQ(cores_shared(cards, 1), 2);
  EXPECT_EQ(cores_shared(cards, 3), 1);
}

}  // namespace
}  // namespace tutti::runtime

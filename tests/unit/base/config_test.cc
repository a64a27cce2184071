// config_test.cc: every TUTTI_* variable is read, and every wrong one is refused with advice.
#include "base/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/text.hpp"

namespace tutti::base {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Config, WithoutVariablesIsTheDefault) {
  const auto config = parse_config({{"PATH", "/bin"}, {"TUTTIFRUTTI", "1"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(*config, Config{});
}

TEST(Config, ReadsEveryVariable) {
  const Environment environment = {
      {"TUTTI_TRANSPORT", "tcp"},
      {"TUTTI_ALGORITHM", "ring"},
      {"TUTTI_LOWERING", "staged"},
      {"TUTTI_CHANNELS", "4"},
      {"TUTTI_SLICE_BYTES", "128K"},
      {"TUTTI_REDUCE_ORDER", "rank_tree"},
      {"TUTTI_WAIT", "yield"},
      {"TUTTI_PROGRESS", "off"},
      {"TUTTI_CHECKSUMS", "on"},
      {"TUTTI_SHARE_HEAP", "1"},
      {"TUTTI_ATTACH", "0"},
      {"TUTTI_GPU_KERNELS", "0"},
      {"TUTTI_GPU_COPY_ENGINES", "1"},
      {"TUTTI_GPU_DIRECT", "receive"},
      {"TUTTI_CHECK", "strict"},
      {"TUTTI_TIMEOUT_MS", "1500"},
      {"TUTTI_SETUP_TIMEOUT_MS", "250"},
      {"TUTTI_LOG", "debug"},
      {"TUTTI_SOCKET_INTERFACE", "eth0"},
      {"TUTTI_JOB_SECRET_FILE", "/run/secret"},
      {"TUTTI_JOB_SECRET", "000102030405060708090a0b0c0d0e0F"},
      {"TUTTI_JOB_BOARD", "/proc/1/fd/5"},
      {"TUTTI_TUNING_FILE", "/etc/tuning"},
      {"TUTTI_SLOW_AFTER_MS", "0"},
      {"TUTTI_FLIGHT", "verbose"},
      {"TUTTI_TEST_DATA", "/data"},
  };
  // A variable that is added to the table must be added here.
  ASSERT_EQ(environment.size(), config_variables().size());
  const auto config = parse_config(environment);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->transport, TransportChoice::tcp);
  EXPECT_EQ(config->algorithm, "ring");
  EXPECT_EQ(config->lowering, LoweringChoice::staged);
  EXPECT_EQ(config->channels, 4);
  EXPECT_EQ(config->slice_bytes, 128U << 10);
  EXPECT_EQ(config->reduce_order, ReduceOrder::rank_tree);
  EXPECT_EQ(config->wait, WaitChoice::yield);
  EXPECT_EQ(config->progress, ProgressChoice::off);
  EXPECT_TRUE(config->checksums);
  EXPECT_TRUE(config->share_heap);
  EXPECT_FALSE(config->attach);
  EXPECT_FALSE(config->gpu_kernels);
  EXPECT_TRUE(config->gpu_copy_engines);
  EXPECT_EQ(config->gpu_direct, GpuDirectChoice::receive);
  EXPECT_EQ(config->check, CheckChoice::strict);
  EXPECT_EQ(config->timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(config->setup_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(config->log, LogLevel::debug);
  EXPECT_EQ(config->socket_interface, "eth0");
  EXPECT_EQ(config->job_secret_file, "/run/secret");
  EXPECT_EQ(config->job_secret, std::string("\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17", 16));
  EXPECT_EQ(config->job_board, "/proc/1/fd/5");
  EXPECT_EQ(config->tuning_file, "/etc/tuning");
  EXPECT_EQ(config->slow_after, std::chrono::milliseconds(0));
  EXPECT_EQ(config->flight, FlightChoice::verbose);
  EXPECT_EQ(config->test_data, "/data");
}

TEST(Config, TableAndStructAgreeOnDefaults) {
  for (const ConfigVariable& variable : config_variables()) {
    Config config;
    if (variable.default_text.empty()) continue;
    EXPECT_TRUE(variable.read(variable.default_text, config).ok()) << variable.name;
    EXPECT_EQ(config, Config{}) << variable.name;
  }
}

TEST(Config, TableIsFitToPrint) {
  std::set<std::string_view> names;
  for (const ConfigVariable& variable : config_variables()) {
    EXPECT_TRUE(variable.name.starts_with("TUTTI_")) << variable.name;
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name << " stands there twice";
    EXPECT_FALSE(variable.allowed.empty()) << variable.name;
    EXPECT_TRUE(variable.help.ends_with(".")) << variable.name;
  }
}

TEST(Config, EmptyMeansNotSet) {
  const auto config = parse_config({{"TUTTI_CHANNELS", ""}, {"TUTTI_TRANSPORT", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(*config, Config{});
}

TEST(Config, UnknownNameIsAnErrorWithTheNearestName) {
  const std::pair<std::string, std::string> cases[] = {
      {"TUTTI_TRANPORT", "did you mean TUTTI_TRANSPORT?"},
      {"TUTTI_CHANEL", "did you mean TUTTI_CHANNELS?"},
      {"TUTTI_TIMEOUT_SM", "did you mean TUTTI_TIMEOUT_MS?"},
      {"TUTTI_LGO", "did you mean TUTTI_LOG?"},
      {"TUTTI_ALGORITM", "did you mean TUTTI_ALGORITHM?"},
  };
  for (const auto& [name, advice] : cases) {
    const auto config = parse_config({{name, "1"}});
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(config.status().message(), AllOf(HasSubstr(name), HasSubstr(advice)));
  }
}

TEST(Config, UnknownNameFarFromAllListsThemAll) {
  const auto config = parse_config({{"TUTTI_XYZZYXYZZY", "1"}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), Not(HasSubstr("did you mean")));
  for (const ConfigVariable& variable : config_variables())
    EXPECT_THAT(config.status().message(), HasSubstr(variable.name));
}

TEST(Config, BadValueNamesVariableValueAndWhatIsAllowed) {
  struct Case {
    std::string name, value, allowed;
  };
  const Case cases[] = {
      {"TUTTI_TRANSPORT", "rdma", "auto, memory, shm, tcp"},
      {"TUTTI_TRANSPORT", "SHM", "auto, memory, shm, tcp, ucx, net_plugin"},
      {"TUTTI_LOWERING", "put", "auto, direct, staged"},
      {"TUTTI_REDUCE_ORDER", "tree", "any, rank_tree"},
      {"TUTTI_WAIT", "sleep", "auto, spin, yield, block"},
      {"TUTTI_CHECKSUMS", "yes", "off, on"},
      {"TUTTI_SHARE_HEAP", "yes", "0, 1"},
      {"TUTTI_LOG", "verbose", "error, warn, info, debug"},
      {"TUTTI_CHANNELS", "65", "from 0 to 64"},
      {"TUTTI_CHANNELS", "two", "from 0 to 64"},
      {"TUTTI_SLICE_BYTES", "64Q", "64MiB"},
      {"TUTTI_TIMEOUT_MS", "0", "from 1 to 2147483647"},
      {"TUTTI_SETUP_TIMEOUT_MS", "30s", "from 1 to 2147483647"},
  };
  for (const Case& each : cases) {
    const auto config = parse_config({{each.name, each.value}});
    ASSERT_FALSE(config.ok()) << each.name << "=" << each.value;
    EXPECT_EQ(config.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(config.status().message(),
                AllOf(HasSubstr(each.name + "=" + each.value), HasSubstr(each.allowed)));
  }
}

TEST(Config, BadSecretIsNotRepeated) {
  const auto config = parse_config({{"TUTTI_JOB_SECRET", "hunter2hunter2hunter2hunter2hunt"}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(),
              AllOf(HasSubstr("TUTTI_JOB_SECRET"), Not(HasSubstr("hunter2"))));
}

TEST(Config, ChoicesAreReadBack) {
  for (const auto choice : {TransportChoice::automatic, TransportChoice::memory,
                            TransportChoice::shm, TransportChoice::tcp})
    EXPECT_EQ(*parse_transport_choice(to_string(choice)), choice);
  for (const auto choice :
       {LoweringChoice::automatic, LoweringChoice::direct, LoweringChoice::staged})
    EXPECT_EQ(*parse_lowering_choice(to_string(choice)), choice);
  for (const auto choice :
       {WaitChoice::automatic, WaitChoice::spin, WaitChoice::yield, WaitChoice::block})
    EXPECT_EQ(*parse_wait_choice(to_string(choice)), choice);
  for (const auto level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug})
    EXPECT_EQ(*parse_log_level(to_string(level)), level);
  EXPECT_EQ(*parse_transport_choice(""), TransportChoice::automatic);
}

}  // namespace
}  // namespace tutti::base

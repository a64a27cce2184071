// job_secret_test.cc: where the job's secret comes from, and that it is never repeated or shared.
#include "base/job_secret.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/config.hpp"

namespace tutti::base {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kDigits = "00112233445566778899aabbccddeeff";

// A home folder with .tutti/secret in it.
class JobSecret : public testing::Test {
 protected:
  JobSecret() {
    std::filesystem::create_directories(home_ + "/.tutti");
    write_secret(std::string(kDigits) + "\n", 0600);
  }
  ~JobSecret() override { std::filesystem::remove_all(home_); }

  void write_secret(const std::string& text, mode_t mode) const {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }

  const std::string home_ = testing::TempDir() + "tutti_job_secret_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path_ = home_ + "/.tutti/secret";
};

TEST_F(JobSecret, MadeOnesAreReadBackAndDiffer) {
  const auto first = make_job_secret(), second = make_job_secret();
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(parse_job_secret(*first)->size(), 32U);
}

TEST_F(JobSecret, ComesFromVariableThenNamedFileThenHome) {
  Config config;
  EXPECT_EQ(*find_job_secret(config, home_), *parse_job_secret(kDigits));
  const std::string named = home_ + "/named";
  std::ofstream(named) << std::string(64, 'a');
  chmod(named.c_str(), 0400);
  config.job_secret_file = named;
  EXPECT_EQ(*find_job_secret(config, home_), std::string(32, '\xaa'));
  config.job_secret = "decoded already";
  EXPECT_EQ(*find_job_secret(config, home_), "decoded already");
}

TEST_F(JobSecret, NoneIsNoError) {
  EXPECT_EQ(*find_job_secret(Config{}, ""), "");
  EXPECT_EQ(*find_job_secret(Config{}, home_ + "/elsewhere"), "");
}

TEST_F(JobSecret, NamedFileMustBeThere) {
  Config config;
  config.job_secret_file = home_ + "/missing";
  const auto secret = find_job_secret(config, home_);
  ASSERT_FALSE(secret.ok());
  EXPECT_EQ(secret.status().code(), StatusCode::system_error);
  EXPECT_THAT(secret.status().message(), HasSubstr("missing"));
}

TEST_F(JobSecret, FileThatOthersReadIsRefused) {
  for (const mode_t mode : {0640U, 0604U, 0620U}) {
    write_secret(kDigits, mode);
    const auto secret = find_job_secret(Config{}, home_);
    ASSERT_FALSE(secret.ok());
    EXPECT_THAT(secret.status().message(), HasSubstr("chmod 600"));
  }
}

TEST_F(JobSecret, BadDigitsAreNotRepeated) {
  for (const std::string text :
       {"0123", "00112233445566778899aabbccddeeffa", "xyzzy", "00112233445566778899aabbccddeegg"}) {
    write_secret(text, 0600);
    const auto secret = find_job_secret(Config{}, home_);
    ASSERT_FALSE(secret.ok()) << text;
    EXPECT_THAT(secret.status().message(), HasSubstr(path_));
    EXPECT_THAT(secret.status().message(), Not(HasSubstr(text)));
  }
}

}  // namespace
}  // namespace tutti::base

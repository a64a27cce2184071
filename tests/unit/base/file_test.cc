// file_test.cc: files that can be read, and that cannot.
#include "base/file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::base {
namespace {

TEST(File, IsReadToItsEnd) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tutti-file-test-" + std::to_string(getpid()));
  for (const std::size_t bytes : {0UL, 1UL, 16383UL, 16384UL, 100'003UL}) {
    std::string written(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) written[i] = static_cast<char>(i * 31);
    std::ofstream(path, std::ios::binary) << written;
    EXPECT_EQ(read_file(path.string()).value(), written) << bytes;
    EXPECT_EQ(read_file(path.string(), bytes).value(), written) << bytes;
    EXPECT_EQ(read_file(path.string(), bytes - 1).ok(), bytes == 0) << "one byte too many";
  }
  std::filesystem::remove(path);
}

TEST(File, ThatIsNotThereIsAnError) {
  const auto text = read_file("/proc/self/no such file");
  EXPECT_EQ(text.status(), Status(StatusCode::system_error, "No such file or directory"));
}

// Both can be opened; reading fails.
TEST(File, ThatCannotBeReadIsAnError) {
  EXPECT_FALSE(read_file("/proc/self/mem").ok());
  EXPECT_EQ(read_file("/proc/self").status(), Status(StatusCode::system_error, "Is a directory"));
}

}  // namespace
}  // namespace tutti::base

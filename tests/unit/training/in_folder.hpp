// in_folder.hpp: a test with a folder of its own, for files that are written and read back.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "training/files/output_file.hpp"

namespace tutti::training::test {

// The folder is gone after the test.
class InFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tutti_training_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string text_of(const std::string& name) const {
    const auto text = read_file(path(name), 1 << 24);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : std::string();
  }

  std::string folder_;
};

}  // namespace tutti::training::test

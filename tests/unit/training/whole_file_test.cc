// whole_file_test.cc: a folder takes another's place in one step.
#include "training/files/whole_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "unit/training/in_folder.hpp"

namespace tutti::training {
namespace {

class ReplaceFolder : public test::InFolder {
 protected:
  void put(const std::string& folder, const std::string& text) const {
    ASSERT_TRUE(make_folder(path(folder)).ok());
    ASSERT_TRUE(write_text_file(path(folder + "/file"), text).ok());
  }
};

TEST_F(ReplaceFolder, GivesTheOlderOneItsName) {
  put("new", "new");
  put("place", "old");
  ASSERT_TRUE(replace_folder_durably(path("new"), path("place")).ok());
  EXPECT_EQ(text_of("place/file"), "new");
  EXPECT_EQ(text_of("new/file"), "old");
}

TEST_F(ReplaceFolder, RenamesWhereThereIsNone) {
  put("new", "new");
  ASSERT_TRUE(replace_folder_durably(path("new"), path("place")).ok());
  EXPECT_EQ(text_of("place/file"), "new");
  EXPECT_FALSE(std::filesystem::exists(path("new")));
}

TEST_F(ReplaceFolder, SaysWhatItCouldNotReplace) {
  const Status status = replace_folder_durably(path("none"), path("place"));
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_NE(status.message().find("place"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace tutti::training

// files.hpp: a directory that is gone after the test, and the recorded machines, if there are any.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }

  // Writes a file with the directories that it needs; gives its full name.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

// Files below $TUTTI_TEST_DATA/`folder` that end in `extension`; none when it is not set.
inline std::vector<std::string> recorded_files(const std::string& folder,
                                               const std::string& extension) {
  const char* root = std::getenv("TUTTI_TEST_DATA");
  std::vector<std::string> files;
  if (root == nullptr) return files;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator
           it(std::filesystem::path(root) / folder, error),
       end;
       !error && it != end; it.increment(error))
    if (it->path().extension() == extension) files.push_back(it->path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tutti::testing

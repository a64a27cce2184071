// corpus.cc: see corpus.hpp.
#include "training/data/corpus.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

// Less than this is not the text, but what an interrupted setup left.
constexpr std::uintmax_t kDefaultCorpusBytesMin = 4'000'000;

Status invalid(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

// What a pattern stands for. One that names a file as it is stands for that file, whatever
// brackets are in the name.
Result<std::vector<std::string>> expand(const std::string& pattern) {
  std::error_code error;
  if (std::filesystem::exists(pattern, error)) return std::vector<std::string>{pattern};
  glob_t found = {};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  for (std::size_t i = 0; result == 0 && i < found.gl_pathc; ++i)
    paths.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (paths.empty()) return invalid(fmt::format("no file matches '{}'", pattern));
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<std::vector<std::string>> expand_all(std::span<const std::string> patterns) {
  std::vector<std::string> all;
  for (const std::string& pattern : patterns) {
    const auto paths = expand(pattern);
    if (!paths.ok()) return paths.status();
    for (const std::string& path : *paths) {
      if (std::find(all.begin(), all.end(), path) != all.end())
        return invalid(fmt::format("'{}' is named twice", path));
      all.push_back(path);
    }
  }
  if (all.empty()) return invalid("a corpus has at least one file, and none is named");
  return all;
}

// The folder for what can be made again; empty where there is no home either.
std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return cache;
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache" : std::string();
}

}  // namespace

Corpus::Corpus(std::vector<TokenFile> files, double held_out) : files_(std::move(files)) {
  begins_.push_back(0);
  for (const TokenFile& file : files_) begins_.push_back(begins_.back() + file.size());
  const auto tail = static_cast<std::int64_t>(static_cast<double>(size()) * held_out);
  validation_begin_ = size() - tail;
}

Result<Corpus> Corpus::open(std::span<const std::string> patterns, double held_out) {
  if (!(held_out >= 0 && held_out < 1))
    return invalid(
        fmt::format("held_out = {}: a share from 0 up to, but not, 1 is right", held_out));
  const auto paths = expand_all(patterns);
  if (!paths.ok()) return paths.status();
  std::vector<TokenFile> files;
  for (const std::string& path : *paths) {
    auto file = TokenFile::open(path);
    if (!file.ok()) return file.status();
    if (!files.empty() && file->vocabulary_bound() != files.front().vocabulary_bound())
      return invalid(fmt::format(
          "'{}' has tokens below {}, but '{}' has them below {}; files of one "
          "corpus are of one tokenizer",
          path, file->vocabulary_bound(), files.front().path(), files.front().vocabulary_bound()));
    files.push_back(*std::move(file));
  }
  return Corpus(std::move(files), held_out);
}

void Corpus::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  TRAINING_CHECK(begin >= 0 && begin <= size() && count <= size() - begin, "tokens past the end");
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), begin);
  for (auto i = static_cast<std::size_t>(after - begins_.begin()) - 1; !out.empty(); ++i) {
    const auto here = std::min(static_cast<std::size_t>(begins_[i + 1] - begin), out.size());
    files_[i].read(begin - begins_[i], out.first(here));
    out = out.subspan(here);
    begin = begins_[i + 1];
  }
}

Status Corpus::check_vocabulary(std::int64_t vocabulary) const {
  for (const TokenFile& file : files_) {
    const Status status = file.check_vocabulary(vocabulary);
    if (!status.ok()) return status;
  }
  return {};
}

Result<std::string> default_corpus_path() {
  const std::string folder = cache_folder();
  if (folder.empty())
    return invalid("no corpus was named, and neither XDG_CACHE_HOME nor HOME says where to look");
  const std::string path = folder + "/tutti/bible-kjv.txt";
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes >= kDefaultCorpusBytesMin) return path;
  return invalid(fmt::format(
      "no corpus was named, and the default one, '{0}', {1}; tools/setup makes it from Debian's "
      "package bible-kjv: apt-get install bible-kjv && mkdir -p '{2}/tutti' && bible -f "
      "gen1:1-rev22:21 </dev/null >'{0}'",
      path, error ? "is not there" : fmt::format("has only {} bytes", bytes), folder));
}

}  // namespace tutti::training

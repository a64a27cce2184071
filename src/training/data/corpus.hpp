// corpus.hpp: what a run trains on: several token files one after the other as one sequence, its
// tail held out for validation. Also finds the text that runs without files of their own use.
//
// Knows nothing of windows, epochs and ranks; that is sampler.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "training/data/token_file.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// Tokens [begin, end).
struct TokenRange {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// A value: copies share the mappings.
//
// Threading  const functions from any thread.
class Corpus {
 public:
  static constexpr double kHeldOut = 0.1;

  // `patterns`: paths, or patterns as of the shell ("data/train_*.bin"), whose files come in the
  // order of their bytes, whatever the locale. `held_out`: which share of the tokens, at the end of
  // the last file, is for validation.
  //
  // Errors  invalid_argument for a pattern that no file matches, a file named twice, files whose
  //         tokens are of different widths, or a share that is not in [0, 1); those of TokenFile.
  static Result<Corpus> open(std::span<const std::string> patterns, double held_out = kHeldOut);

  std::int64_t size() const { return begins_.back(); }
  TokenRange train() const { return {0, validation_begin_}; }
  TokenRange validation() const { return {validation_begin_, size()}; }

  // Requires  a range within size().
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

  std::int64_t vocabulary_bound() const { return files_.front().vocabulary_bound(); }
  Status check_vocabulary(std::int64_t vocabulary) const;  // as TokenFile's

  std::span<const TokenFile> files() const { return files_; }

 private:
  Corpus(std::vector<TokenFile> files, double held_out);

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_;  // of each file, and the end of the last
  std::int64_t validation_begin_ = 0;
};

// Where the text lies that runs use when they are given none: the King James Bible, 4.4 MB of
// public domain English, which tools/setup extracts from Debian's package to
// $XDG_CACHE_HOME/tutti/bible-kjv.txt (~/.cache where that is unset).
//
// Errors  invalid_argument, naming the package and the command that makes the file.
Result<std::string> default_corpus_path();

}  // namespace tutti::training

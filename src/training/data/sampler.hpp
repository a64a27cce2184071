// sampler.hpp: which tokens each row of each global batch is made of. A row's number alone decides
// it, so every layout of ranks reads the same global batches, and to resume takes one integer.
//
// Knows nothing of ranks: row r of step s is row s * global_batch + r, whoever asks.
#pragma once

#include <cstdint>
#include <span>

#include "training/data/corpus.hpp"
#include "training/tensor/philox.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// A pseudo-random order of [0, size) that is computed, not stored: a balanced Feistel network on
// the next even number of bits, walked until it comes back into the range.
//
// Cost    at most 4 walks of 8 rounds in the mean.
// Source  Luby, Rackoff: How to construct pseudorandom permutations (1988); Black, Rogaway: Ciphers
//         with arbitrary finite domains (2002), cycle walking.
class Permutation {
 public:
  // Orders of one `key` and different `stream`s are unrelated. Requires  1 <= size <= 2^62.
  Permutation(std::uint64_t size, std::uint64_t key, std::uint64_t stream);

  // Requires  index < size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t size_;
  std::uint64_t stream_;
  Philox random_;
  int half_bits_;
};

// Cuts a range of a corpus into windows of `sequence` inputs, each with the `sequence` tokens that
// follow them as targets: every token of the range but the first is a target once an epoch, except
// those behind the last whole window.
//
// Threading  const functions from any thread.
// Lifetime   the corpus outlives the sampler.
class Sampler {
 public:
  enum class Order : unsigned char {
    shuffled,  // for training: whole windows only, in another order each epoch, without end
    in_order,  // for validation: each window once, the last one padded; later rows are all padding
  };

  // Errors  invalid_argument when the range has not the tokens of one window, or `sequence` < 1.
  static Result<Sampler> make(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                              Order order, std::uint64_t seed = 0);

  std::int64_t sequence() const { return sequence_; }
  std::int64_t windows() const { return windows_; }  // in an epoch

  // The window that is row `row` of the run, in [0, windows()); windows() for a row that is all
  // padding. Requires  row >= 0.
  std::int64_t window(std::int64_t row) const;
  std::int64_t epoch(std::int64_t row) const { return row / windows_; }

  // How many targets of rows [first_row, first_row + rows) count, without reading them.
  std::int64_t count_targets(std::int64_t first_row, std::int64_t rows) const;

  // Fills a micro-batch: tokens and targets are [rows, sequence], row by row. Padding is token 0
  // with the target kIgnored (architecture/targets.hpp). Returns how many targets count.
  std::int64_t fill(std::int64_t first_row, std::int64_t rows, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const;

 private:
  Sampler(const Corpus& corpus, TokenRange range, std::int64_t sequence, Order order,
          std::uint64_t seed);
  std::int64_t window_targets(std::int64_t window) const;
  void fill_row(std::int64_t window, std::span<std::int32_t> tokens,
                std::span<std::int32_t> targets) const;

  const Corpus* corpus_;
  TokenRange range_;
  std::int64_t sequence_;
  Order order_;
  std::uint64_t key_;
  std::int64_t windows_;
};

}  // namespace tutti::training

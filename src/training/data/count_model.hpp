// count_model.hpp: the simplest model of text that is worth beating: how often each byte followed
// each two bytes. A trained network that does not do better has learnt nothing but letters.
//
// Knows nothing of tensors; one pass over the text trains it.
//
// Source  Witten, Bell: The zero-frequency problem (1991), method C: a context that was seen n
// times
//         before t different bytes gives t / (n + t) of its probability to the context one byte
//         shorter, and the shortest gives it to all bytes alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "training/data/corpus.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

class CountModel {
 public:
  CountModel();

  // Learns from bytes that follow those of the calls before. Requires  tokens in [0, 256), and
  // fewer than 2^32 of them in all.
  void add(std::span<const std::int32_t> bytes);

  // Of `next` behind what came before it: its last two bytes count, or fewer where there are fewer.
  // Positive, and over all 256 of sum 1. Requires  bytes.
  double probability(std::span<const std::int32_t> before, std::int32_t next) const;

 private:
  // What followed one context.
  struct Counts {
    std::array<std::uint32_t, 256> of{};
    std::uint32_t total = 0;
    std::uint32_t different = 0;

    void add(std::size_t byte);
    double mixed(std::size_t byte, double shorter) const;
  };

  Counts none_;                                  // behind anything
  std::vector<Counts> one_;                      // behind each byte
  std::vector<std::unique_ptr<Counts>> two_;     // behind each two, null where they were not seen
  std::array<std::int32_t, 2> last_ = {-1, -1};  // the bytes before the next call's, -1: none
};

// What counts of 32 bits are enough for.
inline constexpr std::int64_t kCountedBytesMax = (std::int64_t{1} << 32) - 1;

// Trains on the corpus's train range. Errors  invalid_argument when its tokens are no bytes, or
// more than kCountedBytesMax.
Result<CountModel> train_count_model(const Corpus& corpus);

// -log2 of the range's probability by its bytes; the first two see shorter contexts.
// Errors  invalid_argument when the range is empty or its tokens are no bytes.
Result<double> bits_per_byte(const CountModel& model, const Corpus& corpus, TokenRange range);

}  // namespace tutti::training

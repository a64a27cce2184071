// sampler.cc: see sampler.hpp.
#include "training/data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "training/architecture/targets.hpp"
#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

// Four make a Feistel network of random functions look random; twice that because halves of small
// ranges are only a few bits.
constexpr std::uint64_t kRounds = 8;

int half_bits_for(std::uint64_t size) {
  return std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t key, std::uint64_t stream)
    : size_(size), stream_(stream), random_(key), half_bits_(half_bits_for(size)) {
  TRAINING_CHECK(size >= 1 && size <= std::uint64_t{1} << 62, "an order of so many");
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  TRAINING_CHECK(index < size_, "an index outside the order");
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = index >> half_bits_, right = index & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (random_(right, stream_ * kRounds + round)[0] & mask);
      left = right;
      right = mixed;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

Result<Sampler> Sampler::make(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                              Order order, std::uint64_t seed) {
  TRAINING_CHECK(range.begin >= 0 && range.end <= corpus.size() && range.begin <= range.end,
                 "a range outside the corpus");
  if (sequence < 1)
    return Status(StatusCode::invalid_argument,
                  fmt::format("a sequence of {} tokens; at least 1 is right", sequence));
  const std::int64_t needed = order == Order::shuffled ? sequence : 1;
  if (range.size() <= needed)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("the {} tokens of this part of the corpus do not make one window: that "
                    "takes {} and one more for the last target; shorten the sequence or "
                    "give more text",
                    range.size(), needed));
  return Sampler(corpus, range, sequence, order, seed);
}

Sampler::Sampler(const Corpus& corpus, TokenRange range, std::int64_t sequence, Order order,
                 std::uint64_t seed)
    : corpus_(&corpus),
      range_(range),
      sequence_(sequence),
      order_(order),
      key_(key_of(seed, "sampler")),
      windows_((range.size() - 1) / sequence) {
  if (order == Order::in_order && (range.size() - 1) % sequence != 0) ++windows_;
}

std::int64_t Sampler::window(std::int64_t row) const {
  TRAINING_CHECK(row >= 0, "rows are counted from 0");
  if (order_ == Order::in_order) return std::min(row, windows_);
  const Permutation order(static_cast<std::uint64_t>(windows_), key_,
                          static_cast<std::uint64_t>(epoch(row)));
  return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(row % windows_)));
}

std::int64_t Sampler::window_targets(std::int64_t window) const {
  const std::int64_t targets = range_.size() - 1 - window * sequence_;
  return std::clamp(targets, std::int64_t{0}, sequence_);
}

std::int64_t Sampler::count_targets(std::int64_t first_row, std::int64_t rows) const {
  if (order_ == Order::shuffled) return rows * sequence_;
  std::int64_t count = 0;
  for (std::int64_t row = first_row; row < first_row + rows; ++row)
    count += window_targets(window(row));
  return count;
}

void Sampler::fill_row(std::int64_t window, std::span<std::int32_t> tokens,
                       std::span<std::int32_t> targets) const {
  const auto count = static_cast<std::size_t>(window_targets(window));
  if (count > 0) {
    const std::int64_t begin = range_.begin + window * sequence_;
    corpus_->read(begin, tokens.first(count));
    corpus_->read(begin + 1, targets.first(count));
  }
  std::fill(tokens.begin() + static_cast<std::ptrdiff_t>(count), tokens.end(), 0);
  std::fill(targets.begin() + static_cast<std::ptrdiff_t>(count), targets.end(), kIgnored);
}

std::int64_t Sampler::fill(std::int64_t first_row, std::int64_t rows,
                           std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  TRAINING_CHECK(static_cast<std::int64_t>(tokens.size()) == rows * sequence_ &&
                     tokens.size() == targets.size(),
                 "a micro-batch is rows * sequence tokens, and as many targets");
  const auto each = static_cast<std::size_t>(sequence_);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i) * each;
    const std::int64_t here = window(first_row + i);
    fill_row(here, tokens.subspan(at, each), targets.subspan(at, each));
    count += window_targets(here);
  }
  return count;
}

}  // namespace tutti::training

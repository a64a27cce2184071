// count_model.cc: see count_model.hpp.
#include "training/data/count_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "training/data/byte_tokenizer.hpp"
#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

constexpr std::size_t kBytes = 256;
constexpr std::int64_t kPiece = 1 << 16;

std::size_t index(std::int32_t byte) {
  TRAINING_CHECK(byte >= 0 && byte < kByteVocabulary, "the count model reads bytes");
  return static_cast<std::size_t>(byte);
}

Status check_bytes(const Corpus& corpus) {
  if (corpus.vocabulary_bound() <= kByteVocabulary) return {};
  return Status(StatusCode::invalid_argument,
                fmt::format("the count model reads bytes, and '{}' has tokens below {}",
                            corpus.files().front().path(), corpus.vocabulary_bound()));
}

}  // namespace

void CountModel::Counts::add(std::size_t byte) {
  TRAINING_CHECK(total + 1 != 0, "the count model counts to 2^32");
  if (of[byte]++ == 0) ++different;
  ++total;
}

double CountModel::Counts::mixed(std::size_t byte, double shorter) const {
  if (total == 0) return shorter;
  const double n = total, t = different;
  return (of[byte] + t * shorter) / (n + t);
}

CountModel::CountModel() : one_(kBytes), two_(kBytes * kBytes) {}

void CountModel::add(std::span<const std::int32_t> bytes) {
  for (const std::int32_t byte : bytes) {
    const std::size_t next = index(byte);
    none_.add(next);
    if (last_[1] >= 0) one_[index(last_[1])].add(next);
    if (last_[0] >= 0) {
      auto& counts = two_[index(last_[0]) * kBytes + index(last_[1])];
      if (!counts) counts = std::make_unique<Counts>();
      counts->add(next);
    }
    last_ = {last_[1], byte};
  }
}

double CountModel::probability(std::span<const std::int32_t> before, std::int32_t next) const {
  const std::size_t byte = index(next), known = before.size();
  double p = none_.mixed(byte, 1.0 / kBytes);
  if (known < 1) return p;
  const std::size_t last = index(before[known - 1]);
  p = one_[last].mixed(byte, p);
  if (known < 2) return p;
  const auto& counts = two_[index(before[known - 2]) * kBytes + last];
  return counts ? counts->mixed(byte, p) : p;
}

Result<CountModel> train_count_model(const Corpus& corpus) {
  if (const Status status = check_bytes(corpus); !status.ok()) return status;
  if (corpus.train().size() > kCountedBytesMax)
    return Status(StatusCode::invalid_argument,
                  "a count model learns from less than 2^32 bytes; the corpus has more");
  CountModel model;
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(kPiece));
  const TokenRange range = corpus.train();
  for (std::int64_t begin = range.begin; begin < range.end; begin += kPiece) {
    const auto count = static_cast<std::size_t>(std::min(kPiece, range.end - begin));
    const std::span<std::int32_t> piece(bytes.data(), count);
    corpus.read(begin, piece);
    model.add(piece);
  }
  return model;
}

Result<double> bits_per_byte(const CountModel& model, const Corpus& corpus, TokenRange range) {
  if (const Status status = check_bytes(corpus); !status.ok()) return status;
  if (range.size() < 1)
    return Status(StatusCode::invalid_argument, "no bytes are held out to measure the model on");
  // Each piece is read with the two bytes before it.
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(kPiece) + 2);
  double bits = 0;
  for (std::int64_t begin = range.begin; begin < range.end; begin += kPiece) {
    const auto before = static_cast<std::size_t>(std::min(std::int64_t{2}, begin - range.begin));
    const auto count = static_cast<std::size_t>(std::min(kPiece, range.end - begin));
    const std::span<std::int32_t> piece(bytes.data(), before + count);
    corpus.read(begin - static_cast<std::int64_t>(before), piece);
    for (std::size_t i = before; i < piece.size(); ++i)
      bits -= std::log2(model.probability(piece.first(i), piece[i]));
  }
  return bits / static_cast<double>(range.size());
}

}  // namespace tutti::training

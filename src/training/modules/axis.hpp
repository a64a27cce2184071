// axis.hpp: the ranks that share one module's work, as that module sees them: a tensor-parallel or
// expert-parallel group. Modules compute a part and ask the axis for the rest.
//
// Knows nothing of Tutti: parallel/ implements it with a communicator; `Alone` is the axis of a
// program without peers, which makes the same modules the serial reference.
#pragma once

#include <cstdint>
#include <span>

#include "training/tensor/tensor.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// All ranks of the axis make the same calls in the same order.
//
// Errors  the first failure stays: later calls return at once and leave their outputs undefined,
//         and whoever drives the step asks status() before it believes a result.
class Axis {
 public:
  virtual ~Axis() = default;

  virtual int size() const = 0;
  virtual int rank() const = 0;

  virtual void all_reduce_sum(const Tensor& data) = 0;  // in place
  virtual void all_reduce_max(const Tensor& data) = 0;  // in place

  // whole = every rank's part one after the other. Requires  equal parts.
  virtual void all_gather(const Tensor& part, const Tensor& whole) = 0;
  // part = this rank's part of the sum of all ranks' wholes. Requires  equal parts.
  virtual void reduce_scatter(const Tensor& whole, const Tensor& part) = 0;

  // Rows of a matrix: sent_rows[p] consecutive ones go to rank p, received_rows[p] come from it.
  virtual void all_to_all_rows(const Tensor& sent, std::span<const std::int64_t> sent_rows,
                               const Tensor& received,
                               std::span<const std::int64_t> received_rows) = 0;
  // received[p] = what rank p has in sent[rank()]: how many rows each will send.
  virtual void exchange_counts(std::span<const std::int64_t> sent,
                               std::span<std::int64_t> received) = 0;

  virtual Status status() const = 0;
};

// One rank: everything is here already.
class Alone final : public Axis {
 public:
  int size() const override { return 1; }
  int rank() const override { return 0; }
  void all_reduce_sum(const Tensor&) override {}
  void all_reduce_max(const Tensor&) override {}
  void all_gather(const Tensor& part, const Tensor& whole) override { copy(part, whole); }
  void reduce_scatter(const Tensor& whole, const Tensor& part) override { copy(whole, part); }
  void all_to_all_rows(const Tensor& sent, std::span<const std::int64_t>, const Tensor& received,
                       std::span<const std::int64_t>) override {
    copy(sent, received);
  }
  void exchange_counts(std::span<const std::int64_t> sent,
                       std::span<std::int64_t> received) override {
    received[0] = sent[0];
  }
  Status status() const override { return {}; }

 private:
  static void copy(const Tensor& from, const Tensor& to) {
    TRAINING_CHECK(from.bytes() == to.bytes(), "a copy between tensors of different sizes");
    if (from.data() != to.data() && from.bytes() > 0)
      std::memcpy(to.data(), from.data(), from.bytes());
  }
};

}  // namespace tutti::training

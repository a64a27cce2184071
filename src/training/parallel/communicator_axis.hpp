// communicator_axis.hpp: an Axis whose ranks are those of a communicator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "training/modules/axis.hpp"
#include "training/parallel/timeline.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

// Lifetime  of the communicator and the timeline: longer.
class CommunicatorAxis final : public Axis {
 public:
  // `name` is for errors and the trace: "tp".
  CommunicatorAxis(std::string name, Communicator& communicator, Timeline& timeline);

  int size() const override { return communicator_.size(); }
  int rank() const override { return communicator_.rank(); }
  void all_reduce_sum(const Tensor& data) override;
  void all_reduce_max(const Tensor& data) override;
  void all_gather(const Tensor& part, const Tensor& whole) override;
  void reduce_scatter(const Tensor& whole, const Tensor& part) override;
  void all_to_all_rows(const Tensor& sent, std::span<const std::int64_t> sent_rows,
                       const Tensor& received,
                       std::span<const std::int64_t> received_rows) override;
  void exchange_counts(std::span<const std::int64_t> sent,
                       std::span<std::int64_t> received) override;
  Status status() const override { return status_; }

 private:
  template <typename Call>
  void make(const char* what, Call&& call);

  std::string name_;
  Communicator& communicator_;
  Timeline& timeline_;
  Status status_;  // the first failure
};

}  // namespace tutti::training

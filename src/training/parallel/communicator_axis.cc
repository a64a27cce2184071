// communicator_axis.cc: see communicator_axis.hpp.
#include "training/parallel/communicator_axis.hpp"

#include <cstddef>
#include <utility>

namespace tutti::training {
namespace {

std::size_t count_of(const Tensor& t) { return static_cast<std::size_t>(t.count()); }

// Rows as elements of a matrix with that many columns.
std::vector<std::size_t> elements(std::span<const std::int64_t> rows, std::int64_t columns) {
  std::vector<std::size_t> counts;
  counts.reserve(rows.size());
  for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count * columns));
  return counts;
}

}  // namespace

CommunicatorAxis::CommunicatorAxis(std::string name, Communicator& communicator, Timeline& timeline)
    : name_(std::move(name)), communicator_(communicator), timeline_(timeline) {}

template <typename Call>
void CommunicatorAxis::make(const char* what, Call&& call) {
  if (size() == 1 || !status_.ok()) return;
  const Stretch stretch(timeline_, Lane::communication, what);
  status_ = call().with_context(name_ + " axis");
}

void CommunicatorAxis::all_reduce_sum(const Tensor& data) {
  make("all_reduce", [&] {
    return communicator_.all_reduce(data.data(), data.data(), count_of(data), data.type(),
                                    ReduceOp::sum);
  });
}

void CommunicatorAxis::all_reduce_max(const Tensor& data) {
  make("all_reduce max", [&] {
    return communicator_.all_reduce(data.data(), data.data(), count_of(data), data.type(),
                                    ReduceOp::max);
  });
}

void CommunicatorAxis::all_gather(const Tensor& part, const Tensor& whole) {
  if (size() == 1) return Alone().all_gather(part, whole);
  make("all_gather", [&] {
    return communicator_.all_gather(part.data(), whole.data(), count_of(part), part.type());
  });
}

void CommunicatorAxis::reduce_scatter(const Tensor& whole, const Tensor& part) {
  if (size() == 1) return Alone().reduce_scatter(whole, part);
  make("reduce_scatter", [&] {
    return communicator_.reduce_scatter(whole.data(), part.data(), count_of(part), part.type(),
                                        ReduceOp::sum);
  });
}

void CommunicatorAxis::all_to_all_rows(const Tensor& sent, std::span<const std::int64_t> sent_rows,
                                       const Tensor& received,
                                       std::span<const std::int64_t> received_rows) {
  if (size() == 1) return Alone().all_to_all_rows(sent, sent_rows, received, received_rows);
  const auto sent_counts = elements(sent_rows, sent.columns());
  const auto received_counts = elements(received_rows, received.columns());
  make("all_to_all", [&] {
    return communicator_.all_to_all_v(sent.data(), BlockLayout{sent_counts}, received.data(),
                                      BlockLayout{received_counts}, sent.type());
  });
}

void CommunicatorAxis::exchange_counts(std::span<const std::int64_t> sent,
                                       std::span<std::int64_t> received) {
  if (size() == 1) return Alone().exchange_counts(sent, received);
  make("exchange counts",
       [&] { return communicator_.all_to_all(sent.data(), received.data(), 1, DataType::int64); });
}

}  // namespace tutti::training

// initial.cc: see initial.hpp.
#include "training/model/initial.hpp"

#include <algorithm>

#include "training/tensor/element.hpp"
#include "training/tensor/philox.hpp"

namespace tutti::training {
namespace {

// Calls f(element of the part, element of the whole, count) for runs that are contiguous in both
// and together are [begin, end) of the part.
template <typename F>
void for_each_run(const Parameter& parameter, std::int64_t begin, std::int64_t end, F&& f) {
  const Shape& whole = parameter.whole_shape;
  const Part& part = parameter.part;
  std::int64_t inner = 1;  // elements for each step along the dimension that is cut
  for (std::size_t i = part.dimension + 1; i < whole.rank(); ++i) inner *= whole[i];
  const std::int64_t run = part.length * inner;
  const std::int64_t stride = (whole.rank() == 0 ? 1 : whole[part.dimension]) * inner;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t within = at % run;
    const std::int64_t count = std::min(run - within, end - at);
    f(at, at / run * stride + part.begin * inner + within, count);
    at += count;
  }
}

template <typename T>
void fill_normal(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                 std::int64_t end, T* out) {
  const Philox random(key_of(seed, parameter.name));
  const double deviation = parameter.initial.deviation;
  for_each_run(parameter, begin, end, [&](std::int64_t at, std::int64_t in_whole, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double drawn = deviation * random.normal(static_cast<std::uint64_t>(in_whole + i));
      out[at - begin + i] = store<T>(static_cast<Wide<T>>(drawn));
    }
  });
}

}  // namespace

void initialise(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                std::int64_t end, const Tensor& out) {
  TRAINING_CHECK(begin >= 0 && begin <= end && end <= parameter.count(), "a range of the part");
  TRAINING_CHECK(out.count() == end - begin, "as many elements as the range has");
  if (begin == end) return;
  visit(out.type(), [&](auto zero) {
    using T = decltype(zero);
    T* values = out.as<T>();
    switch (parameter.initial.kind) {
      case Initial::Kind::normal:
        fill_normal(parameter, seed, begin, end, values);
        break;
      case Initial::Kind::ones:
        std::fill_n(values, end - begin, store<T>(1));
        break;
      case Initial::Kind::zeros:
        std::fill_n(values, end - begin, T{});
        break;
    }
  });
}

}  // namespace tutti::training

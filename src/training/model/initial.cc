// initial.cc: see initial.hpp.
#include "training/model/initial.hpp"

#include <algorithm>

#include "training/modules/part_runs.hpp"
#include "training/tensor/element.hpp"
#include "training/tensor/philox.hpp"

namespace tutti::training {
namespace {

template <typename T>
void fill_normal(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                 std::int64_t end, T* out) {
  const Philox random(key_of(seed, parameter.name));
  const double deviation = parameter.initial.deviation;
  for_each_run(parameter, begin, end, [&](const PartRun& run) {
    for (std::int64_t i = 0; i < run.length; ++i) {
      const double drawn = deviation * random.normal(static_cast<std::uint64_t>(run.in_whole + i));
      out[run.in_part - begin + i] = store<T>(static_cast<Wide<T>>(drawn));
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

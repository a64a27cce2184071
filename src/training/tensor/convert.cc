// convert.cc: see convert.hpp.
#include "training/tensor/convert.hpp"

#include <cstdint>
#include <cstring>

#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

// float16's conversions are bits at work; everything else goes by way of float or double.
template <typename From, typename To>
void convert_elements(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = store<To>(static_cast<Wide<To>>(load(from[i])));
}

}  // namespace

void convert(const Tensor& from, const Tensor& to) {
  TRAINING_CHECK(from.count() == to.count(), "a conversion between tensors of different sizes");
  if (from.type() == to.type()) {
    if (from.bytes() > 0) std::memcpy(to.data(), from.data(), from.bytes());
    return;
  }
  visit(from.type(), [&](auto source) {
    visit(to.type(), [&](auto target) {
      convert_elements(from.as<decltype(source)>(), to.as<decltype(target)>(), from.count());
    });
  });
}

void accumulate(const Tensor& sum, const Tensor& term) {
  TRAINING_CHECK(sum.count() == term.count(), "a sum of tensors of different sizes");
  visit(sum.type(), [&](auto zero) {
    using T = decltype(zero);
    T* const to = sum.as<T>();
    const T* const from = term.as<T>();
    for (std::int64_t i = 0; i < sum.count(); ++i) to[i] = store<T>(load(to[i]) + load(from[i]));
  });
}

}  // namespace tutti::training

// Copies of every small size and of odd large ones, to several places, at any alignment, on every
// instruction set.
#include <gtest/gtest.h>

#include <cstddef>
#include <numeric>
#include <vector>

#include "kernels_targets.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime::kernels {
namespace {

constexpr std::size_t kMargin = 128;
constexpr std::byte kUntouched{0xA5};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 131 + i / 251);
  return data;
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all(300);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t large : {1000u, 4096u, 4099u, 65536u, 100003u}) all.push_back(large);
  return all;
}

void check_copy(std::size_t bytes, std::size_t copies, std::size_t shift, std::size_t step,
                StoreHint stores) {
  const std::vector<std::byte> source = pattern(bytes + 3);
  std::vector<std::vector<std::byte>> places(
      copies, std::vector<std::byte>(bytes + 2 * kMargin, kUntouched));
  std::vector<std::byte*> destinations;
  for (std::size_t d = 0; d < copies; ++d)
    destinations.push_back(places[d].data() + 64 + shift + d * step);
  copy(source.data() + 3, destinations, bytes, stores);
  for (std::size_t d = 0; d < copies; ++d) {
    std::vector<std::byte> expected(bytes + 2 * kMargin, kUntouched);
    const std::size_t begin = 64 + shift + d * step;
    std::copy(source.begin() + 3, source.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(begin));
    ASSERT_EQ(places[d], expected) << bytes << " bytes, copy " << d << " of " << copies
                                   << ", shift " << shift << " + " << step;
  }
}

class KernelsCopy : public OnTarget {};

TEST_P(KernelsCopy, StoresTheSourceEverywhereAndNothingElse) {
  for (std::size_t bytes : sizes())
    for (std::size_t copies = 1; copies <= 4; ++copies)
      for (std::size_t shift : {0u, 1u, 16u})
        for (std::size_t step : {0u, 5u}) {
          check_copy(bytes, copies, shift, step, StoreHint::cached);
          check_copy(bytes, copies, shift, step, StoreHint::streaming);
          check_copy(bytes, copies, shift, step, StoreHint::string);
          check_copy(bytes, copies, shift, step, StoreHint::paged);
          if (HasFatalFailure()) return;
        }
}

TEST_P(KernelsCopy, OntoItselfChangesNothing) {
  for (StoreHint stores :
       {StoreHint::cached, StoreHint::streaming, StoreHint::string, StoreHint::paged}) {
    std::vector<std::byte> data = pattern(1003);
    std::vector<std::byte> other(1003);
    std::byte* const itself[] = {data.data()};
    std::byte* const both[] = {data.data(), other.data()};
    copy(data.data(), itself, data.size(), stores);
    copy(data.data(), both, data.size(), stores);
    EXPECT_EQ(data, pattern(1003));
    EXPECT_EQ(other, pattern(1003));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelsCopy, testing::ValuesIn(runnable_targets()), name_of);

}  // namespace
}  // namespace tutti::runtime::kernels

// What nccl-tests check values by on the stand-in for CUDA has to find what is wrong, and nothing
// else: otherwise they would pass whatever a library does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nccl_tests/cuda_runtime.hpp"

int ncclVerifiablePrepareInput(void* to, std::intptr_t count, int type, int op, int ranks, int rank,
                               std::uint64_t seed, std::intptr_t first, cudaStream_t stream);
int ncclVerifiablePrepareExpected(void* to, std::intptr_t count, int type, int op, int ranks,
                                  std::uint64_t seed, std::intptr_t first, cudaStream_t stream);
int ncclVerifiableVerify(const void* results, const void* wanted, std::intptr_t count, int type,
                         int op, int ranks, std::uint64_t seed, std::intptr_t first,
                         std::int64_t* wrong, cudaStream_t stream);

namespace {

constexpr std::intptr_t kCount = 1000;
constexpr int kRanks = 3;
constexpr int kSeed = 7;
constexpr int kDefaultKind = 4;  // of a copy: from what the addresses are

class Verifiable : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaMalloc(&memory_, kCount * sizeof(std::uint64_t)), 0);
    ASSERT_EQ(cudaMalloc(&wanted_, kCount * sizeof(std::uint64_t)), 0);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(memory_), 0);
    EXPECT_EQ(cudaFree(wanted_), 0);
  }

  void put(const void* from, std::size_t bytes) {
    ASSERT_EQ(cudaMemcpy(memory_, from, bytes, kDefaultKind), 0);
  }

  template <typename T>
  std::vector<T> get() {
    std::vector<T> got(kCount);
    EXPECT_EQ(cudaMemcpy(got.data(), memory_, kCount * sizeof(T), kDefaultKind), 0);
    return got;
  }

  template <typename T>
  std::vector<T> input(int type, int op, int rank, std::intptr_t first = 0) {
    EXPECT_EQ(
        ncclVerifiablePrepareInput(memory_, kCount, type, op, kRanks, rank, kSeed, first, nullptr),
        0);
    return get<T>();
  }

  // How many elements are wrong, found in both ways.
  std::int64_t wrong(int type, int op) {
    EXPECT_EQ(ncclVerifiablePrepareExpected(wanted_, kCount, type, op, kRanks, kSeed, 0, nullptr),
              0);
    std::int64_t found = -1;
    EXPECT_EQ(
        ncclVerifiableVerify(memory_, wanted_, kCount, type, op, kRanks, kSeed, 0, &found, nullptr),
        0);
    std::int64_t again = -1;
    EXPECT_EQ(
        ncclVerifiableVerify(memory_, nullptr, kCount, type, op, kRanks, kSeed, 0, &again, nullptr),
        0);
    EXPECT_EQ(found, again);
    return found;
  }

  void* memory_ = nullptr;
  void* wanted_ = nullptr;
};

TEST_F(Verifiable, ARightSumIsRightAndOneDamagedElementIsFound) {
  std::vector<float> sum(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto own = input<float>(ncclFloat32, ncclSum, rank);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  put(sum.data(), sum.size() * sizeof(float));
  EXPECT_EQ(wrong(ncclFloat32, ncclSum), 0);
  sum[10] += 1;
  put(sum.data(), sum.size() * sizeof(float));
  EXPECT_EQ(wrong(ncclFloat32, ncclSum), 1);
}

TEST_F(Verifiable, OddRanksCountTwiceInAPreMulSum) {
  std::vector<int> sum(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto own = input<int>(ncclInt32, ncclNumOps, rank);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (rank % 2 == 1 ? 2 : 1) * own[i];
  }
  put(sum.data(), sum.size() * sizeof(int));
  EXPECT_EQ(wrong(ncclInt32, ncclNumOps), 0);
}

TEST_F(Verifiable, OneRanksInputIsNotTheResultOfAny) {
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (const int op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps}) {
      EXPECT_EQ(ncclVerifiablePrepareInput(memory_, kCount, type, op, kRanks, 1, kSeed, 0, nullptr),
                0);
      EXPECT_GT(wrong(type, op), kCount / 10) << "type " << type << ", operation " << op;
    }
  }
}

TEST_F(Verifiable, WhatIsMovedByAnElementIsFound) {
  const auto moved = input<std::int8_t>(ncclInt8, ncclSum, 0, 1);
  const auto whole = input<std::int8_t>(ncclInt8, ncclSum, 0);
  EXPECT_EQ(std::vector(moved.begin(), moved.end() - 1),
            std::vector(whole.begin() + 1, whole.end()));
  EXPECT_NE(moved, whole);
}

TEST_F(Verifiable, SmallFloatsAreEncodedAsTheirTypesSay) {
  // Whole numbers as far as the type's sums go, as their bits.
  const std::vector<std::uint8_t> e4m3 = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50};
  for (const std::uint8_t bits : input<std::uint8_t>(ncclFloat8e4m3, ncclMax, 0)) {
    const auto size = static_cast<std::uint8_t>(bits & 0x7f);
    EXPECT_NE(std::find(e4m3.begin(), e4m3.end(), size), e4m3.end()) << int{bits};
  }
  const std::vector<std::uint8_t> e5m2 = {0x00, 0x3c, 0x40, 0x42, 0x44};
  for (const std::uint8_t bits : input<std::uint8_t>(ncclFloat8e5m2, ncclMax, 0)) {
    const auto size = static_cast<std::uint8_t>(bits & 0x7f);
    EXPECT_NE(std::find(e5m2.begin(), e5m2.end(), size), e5m2.end()) << int{bits};
  }
}

}  // namespace

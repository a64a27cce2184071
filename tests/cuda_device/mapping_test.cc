// Memory of cuMemCreate over the stand-in for CUDA: what a device shares of it with other
// processes, what it takes of theirs, and who reaches it in this one. And the stand-in itself: that
// it is as strict as tests count on.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "base/descriptor.hpp"
#include "cuda_device/cuda_devices.hpp"
#include "transport/cuda/mapping.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tutti::testing::counts;

namespace cuda = transport::cuda;

constexpr std::size_t kPart = 64 << 10;

std::size_t open_files() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

class CudaMapping : public OnCudaDevices {
 protected:
  void SetUp() override {
    OnCudaDevices::SetUp();
    if (IsSkipped()) return;
    f_ = *cuda::find_mapping_functions();
    for (const int ordinal : {0, 1}) device(ordinal);
    before_ = counts();
    files_ = open_files();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(counts().objects, before_.objects);
    EXPECT_EQ(counts().reservations, before_.reservations);
    EXPECT_EQ(open_files(), files_);
  }

  cuda::MappingDriver mapping() const { return {&driver(), &f_}; }
  static cuda::ObjectProperties properties(int types, int ordinal = 0) {
    cuda::ObjectProperties wanted;
    wanted.handle_types = types;
    wanted.location.id = ordinal;
    return wanted;
  }
  // Parts side by side, each of this many bytes and these handle types.
  cuda::MappedRange range_of(const std::vector<std::pair<std::size_t, int>>& parts,
                             int ordinal = 0) const {
    std::size_t bytes = 0;
    for (const auto& [part, types] : parts) bytes += part;
    auto range = *cuda::MappedRange::reserve(mapping(), bytes);
    for (const auto& [part, types] : parts) {
      const auto object = cuda::OwnObject::create(mapping(), part, properties(types, ordinal));
      EXPECT_TRUE(object.ok()) << object.status().to_string();
      EXPECT_TRUE(range.append(*object, part).ok());
    }
    const std::array<int, 1> own{ordinal};
    EXPECT_TRUE(range.open_to(own).ok());
    return range;
  }

  cuda::MappingFunctions f_{};
  TuttiStandInCounts before_{};
  std::size_t files_ = 0;
};

TEST_F(CudaMapping, SharesThePartsThatARangeTouches) {
  const auto range = range_of({{kPart, 1}, {2 * kPart, 1}, {kPart, 1}});
  const auto all = device().share_memory(range.begin() + 5, 4 * kPart - 5);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(all->allocation.begin, range.begin());
  EXPECT_EQ(all->allocation.bytes, 4 * kPart);
  EXPECT_EQ(all->parts->count(), 3U);
  EXPECT_EQ(all->parts->bytes(1), 2 * kPart);
  const auto middle = device().share_memory(range.begin() + kPart, 2 * kPart);
  ASSERT_TRUE(middle.ok());
  EXPECT_EQ(middle->allocation.begin, range.begin() + kPart);
  EXPECT_EQ(middle->parts->count(), 1U);
  const auto again = device().share_memory(range.begin(), 4 * kPart);
  EXPECT_EQ(again->allocation, all->allocation);
}

// What another device of this process maps is the very same memory.
TEST_F(CudaMapping, MapsWhatAnotherShares) {
  for (const int types : {cuda::kByDescriptor, cuda::kByFabric}) {
    setenv("CUDA_STAND_IN_FABRIC", "1", 1);
    const auto range = range_of({{kPart, types}, {2 * kPart, types}});
    const auto shared = device().share_memory(range.begin(), 3 * kPart);
    ASSERT_TRUE(shared.ok()) << shared.status().to_string();
    auto foreign = device(1).reserve_parts(3 * kPart);
    ASSERT_TRUE(foreign.ok());
    for (std::size_t part = 0; part < 2; ++part) {
      const auto key = shared->parts->key(part);
      ASSERT_TRUE(key.ok());
      EXPECT_EQ(key->descriptor.open(), types == cuda::kByDescriptor);
      EXPECT_TRUE((*foreign)->add(*key, shared->parts->bytes(part)).ok());
    }
    const std::vector<std::byte> told(3 * kPart, std::byte{17});
    std::vector<std::byte> heard(3 * kPart);
    EXPECT_FALSE(device(1).copy_in((*foreign)->begin(), told.data(), told.size()).ok())
        << "it is not open yet";
    EXPECT_TRUE((*foreign)->open().ok());
    EXPECT_TRUE(device(1).copy_in((*foreign)->begin(), told.data(), told.size()).ok());
    EXPECT_TRUE(device(0).copy_out(heard.data(), range.begin(), heard.size()).ok());
    EXPECT_EQ(heard, told);
    unsetenv("CUDA_STAND_IN_FABRIC");
  }
}

// The memory that is shared is that of now, whatever the addresses hold later.
TEST_F(CudaMapping, OtherMemoryAtTheSameAddressIsAnother) {
  const auto range = range_of({{kPart, 1}});
  const auto at = reinterpret_cast<cuda::DevicePointer>(range.begin());
  const auto first = device().share_memory(range.begin(), kPart);
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(f_.cuMemUnmap(at, kPart), cuda::kSuccess);
  const auto object = cuda::OwnObject::create(mapping(), kPart, properties(1));
  ASSERT_EQ(f_.cuMemMap(at, kPart, 0, object->get(), 0), cuda::kSuccess);
  const auto second = device().share_memory(range.begin(), kPart);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->allocation.begin, first->allocation.begin);
  EXPECT_NE(second->allocation.id, first->allocation.id);
  EXPECT_TRUE(first->parts->key(0).ok()) << "it is held";
}

TEST_F(CudaMapping, SaysWhyOthersCannotHaveIt) {
  const auto closed = range_of({{kPart, 0}});
  EXPECT_THAT(device().share_memory(closed.begin(), kPart).status().message(),
              HasSubstr("only where it was made with a handle type"));
  const auto partly = range_of({{kPart, 1}, {kPart, 0}});
  EXPECT_TRUE(device().share_memory(partly.begin(), kPart).ok());
  EXPECT_EQ(device().share_memory(partly.begin(), kPart + 1).status().code(),
            StatusCode::unsupported);
  EXPECT_FALSE(device().share_memory(partly.begin(), 2 * kPart + 1).ok()) << "beyond its end";
  const auto elsewhere = range_of({{kPart, 1}}, 1);
  EXPECT_THAT(device().share_memory(elsewhere.begin(), kPart).status().message(),
              HasSubstr("of the rank's own device only"));
}

TEST_F(CudaMapping, WhateverTheDriverRefusesIsNamed) {
  const auto range = range_of({{kPart, 1}});
  for (const char* const function :
       {"cuMemGetAddressRange_v2", "cuMemGetAllocationPropertiesFromHandle"}) {
    fail_next(function, cuda::kNotSupported);
    EXPECT_FALSE(device().share_memory(range.begin(), kPart).ok()) << function;
  }
  const auto shared = *device().share_memory(range.begin(), kPart);
  fail_next("cuMemExportToShareableHandle", 719);
  EXPECT_THAT(shared.parts->key(0).status().message(),
              HasSubstr("cuMemExportToShareableHandle: CUDA_ERROR_LAUNCH_FAILED"));
  fail_next("cuMemAddressReserve", cuda::kOutOfMemory);
  EXPECT_THAT(device(1).reserve_parts(kPart).status().message(), HasSubstr("cuMemAddressReserve"));
  const auto key = shared.parts->key(0);
  for (const char* const function : {"cuMemImportFromShareableHandle", "cuMemMap"}) {
    const auto foreign = *device(1).reserve_parts(kPart);
    fail_next(function, cuda::kNotSupported);
    const Status status = foreign->add(*key, kPart);
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("cannot share the memory of another"), HasSubstr(function)));
  }
  const auto foreign = *device(1).reserve_parts(kPart);
  EXPECT_TRUE(foreign->add(*key, kPart).ok());
  EXPECT_FALSE(foreign->add(*key, kPart).ok()) << "there is no room";
  fail_next("cuMemSetAccess", 101);
  EXPECT_THAT(foreign->open().message(), HasSubstr("cuMemSetAccess"));
}

TEST_F(CudaMapping, TakesNoKeysThatAreNone) {
  const auto foreign = *device(1).reserve_parts(kPart);
  PartKey key;
  EXPECT_FALSE(foreign->add(key, kPart).ok());
  key.handle.fill(std::byte{0x55});
  EXPECT_FALSE(foreign->add(key, kPart).ok());
  key.descriptor = base::Descriptor(::dup(0));
  EXPECT_FALSE(foreign->add(key, kPart).ok());
}

// Kernels of other devices reach it if it was opened to them; who has not asked does not count.
TEST_F(CudaMapping, IsReachableAsFarAsItIsOpen) {
  const auto range = range_of({{kPart, 1}, {kPart, 0}});
  EXPECT_TRUE(device(0).is_reachable(range.begin() + 8, 2 * kPart - 8));
  EXPECT_FALSE(device(1).is_reachable(range.begin(), 1)) << "another device's";
  ASSERT_TRUE(device(1).reach(device(0)).ok());
  EXPECT_FALSE(device(0).is_reachable(range.begin(), 1));
  const cuda::MemoryAccess access{{cuda::kLocationDevice, 1}, cuda::kAccessBoth};
  const auto at = reinterpret_cast<cuda::DevicePointer>(range.begin());
  ASSERT_EQ(f_.cuMemSetAccess(at, kPart, &access, 1), cuda::kSuccess);
  EXPECT_TRUE(device(0).is_reachable(range.begin(), kPart));
  EXPECT_FALSE(device(0).is_reachable(range.begin(), kPart + 1));
}

TEST_F(CudaMapping, ADeviceWithoutItSaysSo) {
  setenv("CUDA_STAND_IN_NO_MAPPING", "1", 1);
  const auto made = make_cuda_device(0, kSomeImage);
  unsetenv("CUDA_STAND_IN_NO_MAPPING");
  const auto range = range_of({{kPart, 1}});
  EXPECT_THAT((*made)->share_memory(range.begin(), kPart).status().message(),
              HasSubstr("maps no memory part by part"));
  EXPECT_EQ((*made)->reserve_parts(kPart).status().code(), StatusCode::unsupported);
  EXPECT_FALSE((*made)->is_reachable(range.begin(), kPart));
}

// While the program captures, what is mapped for peers disturbs nothing.
TEST_F(CudaMapping, DisturbsNoCapture) {
  const auto range = range_of({{kPart, 1}});
  const auto scope = cuda::ContextScope::enter(driver(), tutti::testing::context_of(driver(), 0));
  const auto stream = cuda::OwnStream::make(driver());
  const tutti::testing::Graph graph(stream->get(), [&] {
    const auto shared = device().share_memory(range.begin(), kPart);
    ASSERT_TRUE(shared.ok());
    const auto foreign = device(1).reserve_parts(kPart);
    EXPECT_TRUE((*foreign)->add(*shared->parts->key(0), kPart).ok());
    EXPECT_TRUE((*foreign)->open().ok());
  });
  EXPECT_EQ(graph.code(), cuda::kSuccess);
}

// ---- The stand-in ----

TEST_F(CudaMapping, TheStandInRefusesWhatCudaDoes) {
  cuda::MemoryObject object = 0;
  auto wanted = properties(cuda::kByFabric);
  EXPECT_EQ(f_.cuMemCreate(&object, kPart, &wanted, 0), cuda::kNotSupported) << "no fabric";
  wanted = properties(0);
  EXPECT_EQ(f_.cuMemCreate(&object, kPart + 1, &wanted, 0), cuda::kInvalidValue);
  wanted.location.id = 9;
  EXPECT_EQ(f_.cuMemCreate(&object, kPart, &wanted, 0), 101);
  wanted.location.id = 0;
  ASSERT_EQ(f_.cuMemCreate(&object, kPart, &wanted, 0), cuda::kSuccess);
  int number = -1;
  EXPECT_EQ(f_.cuMemExportToShareableHandle(&number, object, cuda::kByDescriptor, 0),
            cuda::kInvalidValue)
      << "nobody asked for it when it was made";
  cuda::DevicePointer at = 0;
  ASSERT_EQ(f_.cuMemAddressReserve(&at, 2 * kPart, 0, 0, 0), cuda::kSuccess);
  EXPECT_EQ(f_.cuMemMap(at, 2 * kPart, 0, object, 0), cuda::kInvalidValue) << "beyond its end";
  EXPECT_EQ(f_.cuMemMap(at, kPart, kPart, object, 0), cuda::kInvalidValue);
  EXPECT_EQ(f_.cuMemMap(at + 2 * kPart, kPart, 0, object, 0), cuda::kInvalidValue);
  ASSERT_EQ(f_.cuMemMap(at, kPart, 0, object, 0), cuda::kSuccess);
  EXPECT_EQ(f_.cuMemMap(at, kPart, 0, object, 0), cuda::kInvalidValue) << "mapped already";
  EXPECT_EQ(f_.cuMemRelease(object), cuda::kSuccess);
  EXPECT_EQ(counts().objects, before_.objects + 1) << "the mapping holds it";
  EXPECT_EQ(f_.cuMemAddressFree(at, 2 * kPart), cuda::kInvalidValue) << "something is mapped";
  EXPECT_EQ(driver().functions().cuMemFree_v2(at), 201) << "without a context";
  const cuda::MemoryAccess access{{cuda::kLocationDevice, 0}, cuda::kAccessBoth};
  EXPECT_EQ(f_.cuMemSetAccess(at, 2 * kPart, &access, 1), cuda::kInvalidValue) << "a gap";
  EXPECT_EQ(f_.cuMemUnmap(at, 2 * kPart), cuda::kInvalidValue);
  EXPECT_EQ(f_.cuMemUnmap(at, kPart), cuda::kSuccess);
  EXPECT_EQ(f_.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(at)),
            cuda::kInvalidValue);
  EXPECT_EQ(f_.cuMemAddressFree(at, 2 * kPart), cuda::kSuccess);
}

// Also one that comes while its owner looks.
TEST_F(CudaMapping, TheStandInSeesWhoeverHasIt) {
  const auto own = range_of({{kPart, cuda::kByDescriptor}});
  const void* const memory = own.begin();
  const auto object = cuda::OwnObject::mapped_at(mapping(), memory);
  ASSERT_TRUE(object.ok()) << object.status().to_string();
  int number = -1;
  ASSERT_EQ(f_.cuMemExportToShareableHandle(&number, object->get(), cuda::kByDescriptor, 0),
            cuda::kSuccess);
  const base::Descriptor shared(number);
  std::atomic<bool> ends{false};
  std::thread looks([&] {
    while (!ends) tutti::testing::stand_in().is_mapped_elsewhere(memory);
  });
  int unseen = 0;
  for (int use = 0; use < 1000; ++use) {
    cuda::MemoryObject taken = 0;
    auto* const key = reinterpret_cast<void*>(static_cast<std::intptr_t>(number));
    ASSERT_EQ(f_.cuMemImportFromShareableHandle(&taken, key, cuda::kByDescriptor), cuda::kSuccess);
    unseen += tutti::testing::stand_in().is_mapped_elsewhere(memory) ? 0 : 1;
    ASSERT_EQ(f_.cuMemRelease(taken), cuda::kSuccess);
  }
  ends = true;
  looks.join();
  EXPECT_EQ(unseen, 0);
}

}  // namespace
}  // namespace tutti::runtime::gpu

// shm_extents_test.cc: what remapped memory is kept track of with: the list of mappings, the table
// of extents, and at a peer the pieces of a sparse file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/shm/extents.hpp"
#include "transport/shm/file.hpp"
#include "transport/shm/maps.hpp"
#include "transport/shm/sparse.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kHuge = shm::kHugePageBytes;

TEST(MapsTest, LinesAreReadAndNonsenseIsNot) {
  shm::MappedRange range;
  ASSERT_TRUE(shm::parse_maps_line("7f00a000-7f00c000 rw-s 00001000 00:01 77    /memfd:x (deleted)",
                                   range));
  EXPECT_EQ(range.begin, 0x7f00a000U);
  EXPECT_EQ(range.end, 0x7f00c000U);
  EXPECT_TRUE(range.readable && range.writable && !range.executable && range.shared);
  EXPECT_EQ(range.offset, 0x1000U);
  EXPECT_EQ(range.inode, 77U);
  EXPECT_EQ(range.name, "/memfd:x (deleted)");
  ASSERT_TRUE(shm::parse_maps_line("1000-2000 ---p 00000000 00:00 0", range));
  EXPECT_EQ(range.name, "");
  for (const char* line :
       {"", "-", "1000", "1000-", "1000-2000", "1000-2000 rw-p", "2000-1000 rw-p ",
        "1000-2000 rw-p 0", "1000-2000 rw-p 0 00:00 ", "x-y rw-p 0 00:00 0"})
    EXPECT_FALSE(shm::parse_maps_line(line, range)) << line;
}

TEST(MapsTest, ThisProcessFindsItsOwnMemory) {
  const auto address = reinterpret_cast<std::uintptr_t>(&kHuge);
  shm::MapsReader maps;
  shm::MappedRange range;
  std::uintptr_t last = 0;
  bool found = false;
  while (maps.next(range)) {
    EXPECT_GE(range.begin, last);
    last = range.end;
    found = found || (range.begin <= address && address < range.end);
  }
  EXPECT_TRUE(found);
  EXPECT_GT(shm::status_kib("VmRSS:"), 0U);
  EXPECT_EQ(shm::status_kib("NoSuchThing:"), 0U);
}

// Against one entry for each unit of memory.
TEST(ExtentsTest, DoesWhatAPlainTableDoes) {
  constexpr std::uintptr_t kUnits = 64;
  auto extents = std::make_unique<shm::Extents>();
  std::vector<int> file(kUnits, -1);
  std::uint64_t random = 1;
  const auto draw = [&](std::uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % below;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::uintptr_t begin = draw(kUnits);
    const std::uintptr_t end = begin + 1 + draw(kUnits - begin);
    if (draw(2) == 0) {
      shm::Extent piece;
      std::uintptr_t at = begin;
      while (extents->take(begin, end, piece)) {
        for (; at < piece.begin; ++at) ASSERT_EQ(file[at], -1);
        for (; at < piece.end; ++at) {
          ASSERT_EQ(file[at], piece.file);
          ASSERT_EQ(piece.offset_of(at), at + 1000);
          file[at] = -1;
        }
      }
      for (; at < end; ++at) ASSERT_EQ(file[at], -1);
    } else {
      bool room = true;
      for (std::uintptr_t u = begin; u < end; ++u) room = room && file[u] == -1;
      if (!room) continue;
      const int number = static_cast<int>(draw(2));
      ASSERT_TRUE(extents->insert({begin, end, begin + 1000, number}));
      for (std::uintptr_t u = begin; u < end; ++u) file[u] = number;
    }
    std::size_t runs = 0;
    for (std::uintptr_t u = 0; u < kUnits; ++u) {
      const shm::Extent* extent = extents->at_or_after(u);
      const bool inside = extent != nullptr && extent->begin <= u;
      ASSERT_EQ(inside ? extent->file : -1, file[u]);
      runs += file[u] != -1 && (u == 0 || file[u - 1] != file[u]) ? 1 : 0;
    }
    ASSERT_EQ(extents->size(), runs) << "neighbours are one";
  }
}

TEST(ExtentsTest, AFullTableRefuses) {
  auto extents = std::make_unique<shm::Extents>();
  std::uintptr_t at = 0;
  while (extents->insert({at, at + 1, at, 0})) at += 2;
  EXPECT_EQ(extents->size(), shm::Extents::kMost);
  EXPECT_FALSE(extents->has_room());
  shm::Extent piece;
  ASSERT_TRUE(extents->take(0, 1, piece));
  EXPECT_EQ(piece.end, 1U);
}

TEST(SparseFileTest, PartsAreMappedAndBounded) {
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 40;
  auto file = shm::make_memory_file(kBytes);
  ASSERT_TRUE(file.ok());
  const shm::Descriptor mine(dup(file->number()));
  shm::SparseFile sparse(std::move(file).value(), kBytes);
  std::byte* there = sparse.at((std::uint64_t{1} << 39) + 5000, 3 * kHuge);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(sparse.at((std::uint64_t{1} << 39) + 6000, 100), there + 1000) << "the same piece";
  there[0] = std::byte{4};
  std::byte byte{};
  ASSERT_EQ(pread(mine.number(), &byte, 1, (off_t{1} << 39) + 5000), 1);
  EXPECT_EQ(byte, std::byte{4});
  EXPECT_NE(sparse.at(kBytes - 10, 10), nullptr);
  EXPECT_EQ(sparse.at(kBytes - 10, 11), nullptr);
  EXPECT_EQ(sparse.at(kBytes + 1, 1), nullptr);
  EXPECT_EQ(sparse.at(~std::uint64_t{0}, 2), nullptr);
  EXPECT_EQ(sparse.at(5, ~std::size_t{0}), nullptr);
  EXPECT_EQ(sparse.at(5, 0), nullptr);
  // More pieces than are kept: each is right when it is asked for.
  for (std::uint64_t p = 0; p < 2 * shm::SparseFile::kPiecesMost; ++p) {
    std::byte* piece = sparse.at(p * 2 * kHuge, 8);
    ASSERT_NE(piece, nullptr);
    *piece = static_cast<std::byte>(p * 7);
  }
  for (std::uint64_t p = 0; p < 2 * shm::SparseFile::kPiecesMost; ++p)
    ASSERT_EQ(*sparse.at(p * 2 * kHuge, 8), static_cast<std::byte>(p * 7));
}

}  // namespace
}  // namespace tutti::transport

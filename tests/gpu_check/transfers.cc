// transfers.cc: sends and receives of ranks that share a device: groups of all with all, of unequal
// sizes, from where the bytes lie and through slots. See checks.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/try.hpp"
#include "gpu_check/case_memory.hpp"
#include "gpu_check/checks.hpp"
#include "gpu_world/stage.hpp"

namespace tutti::gpu_check {
namespace {

using runtime::gpu::Device;
using runtime::gpu::GpuCall;
using runtime::gpu::GpuOptions;
using runtime::gpu::Stage;

// Of what `from` sends to `to`: all are others, and some are none.
std::size_t bytes_of(int from, int to, std::size_t most) {
  return most / 16 * static_cast<std::size_t>((5 * from + 3 * to) % 17) +
         static_cast<std::size_t>(from % 3);
}

std::byte value_at(int from, int to, std::size_t at, int time) {
  return static_cast<std::byte>(at * 7 + at / 509 +
                                static_cast<std::size_t>(31 * from + 11 * to + 3 * time));
}

// What one rank has to do with each other one, and with itself: rooms for what it sends, then for
// what it receives.
class Letters {
 public:
  Letters(int rank, int ranks, std::size_t most)
      : rank_(rank), ranks_(ranks), most_(most), room_(most + most / 8 + 64) {}

  std::size_t bytes() const { return 2 * static_cast<std::size_t>(ranks_) * room_; }

  std::vector<std::byte> before(int time) const {
    std::vector<std::byte> image(bytes(), std::byte{0xaa});
    for (int peer = 0; peer < ranks_; ++peer)
      for (std::size_t at = 0; at < bytes_of(rank_, peer, most_); ++at)
        image[sent(peer) + at] = value_at(rank_, peer, at, time);
    return image;
  }
  std::vector<std::byte> after(int time) const {
    std::vector<std::byte> image = before(time);
    for (int peer = 0; peer < ranks_; ++peer)
      for (std::size_t at = 0; at < bytes_of(peer, rank_, most_); ++at)
        image[received(peer) + at] = value_at(peer, rank_, at, time);
    return image;
  }
  GpuCall call(std::byte* memory) const {
    GpuCall call;
    for (int peer = 0; peer < ranks_; ++peer) {
      call.transfers.push_back({true, peer, memory + sent(peer), bytes_of(rank_, peer, most_)});
      call.transfers.push_back(
          {false, peer, memory + received(peer), bytes_of(peer, rank_, most_)});
    }
    return call;
  }

 private:
  // Not all at multiples of a vector.
  std::size_t sent(int peer) const {
    return static_cast<std::size_t>(peer) * room_ + static_cast<std::size_t>(peer % 5);
  }
  std::size_t received(int peer) const {
    return static_cast<std::size_t>(ranks_ + peer) * room_ + static_cast<std::size_t>(peer % 2);
  }

  const int rank_;
  const int ranks_;
  const std::size_t most_;
  const std::size_t room_;
};

Status exchange(Device& device, Stage& stage, std::size_t most, int time) {
  std::vector<CaseMemory> memories;
  for (Rank rank = 0; rank < stage.ranks(); ++rank) {
    const Letters letters(rank, stage.ranks(), most);
    auto memory = CaseMemory::make(device, letters.bytes(), false);
    TUTTI_TRY(memory);
    const std::vector<std::byte> image = letters.before(time);
    TUTTI_TRY(device.copy_in(memory->data(), image.data(), image.size()));
    memories.push_back(*std::move(memory));
  }
  const auto data = [&](Rank rank) { return memories[static_cast<std::size_t>(rank)].data(); };
  for (Rank rank = 0; rank < stage.ranks(); ++rank)
    TUTTI_TRY(stage.world().rank(rank).call(Letters(rank, stage.ranks(), most).call(data(rank)),
                                            stage.stream(rank)));
  TUTTI_TRY(stage.synchronize());
  for (Rank rank = 0; rank < stage.ranks(); ++rank) {
    const std::vector<std::byte> expected = Letters(rank, stage.ranks(), most).after(time);
    std::vector<std::byte> found(expected.size());
    TUTTI_TRY(device.copy_out(found.data(), data(rank), found.size()));
    const auto wrong = std::mismatch(found.begin(), found.end(), expected.begin());
    if (wrong.first != found.end())
      return Status(StatusCode::internal, fmt::format("rank {}: byte {} of {} is wrong", rank,
                                                      wrong.first - found.begin(), found.size()));
  }
  return Status();
}

}  // namespace

void check_transfers(Device& device, const Extent& extent, Report& report) {
  constexpr const char* kName = "sends and receives";
  std::vector<std::size_t> sizes = extent.counts;
  sizes.insert(sizes.end(), extent.large.begin(), extent.large.end());
  int groups = 0;
  for (const int ranks : extent.ranks)
    for (const bool direct : {true, false}) {
      GpuOptions options = extent.options;
      options.direct = direct;
      auto stage =
          Stage::make(std::vector<Device*>(static_cast<std::size_t>(ranks), &device), options);
      Status status = stage.status();
      for (const std::size_t most : sizes)
        for (int time = 0; time < 3 && status.ok(); ++time, ++groups)
          status = exchange(device, **stage, most, time)
                       .with_context(fmt::format("{} ranks, up to {} bytes, {}", ranks, most,
                                                 direct ? "direct" : "through slots"));
      if (!status.ok()) return report.failed(kName, status.to_string());
    }
  report.passed(kName, fmt::format("{} groups of all with all, of unequal sizes", groups));
}

}  // namespace tutti::gpu_check

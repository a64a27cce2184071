// registered.hpp: memory of ranks that take one another for other processes, registered with their
// world or not, and calls in it.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpu_world/members.hpp"

namespace tutti::runtime::gpu {

inline constexpr std::size_t kBefore = 768;  // of a rank's memory, before its buffers

// What a call is like, of all ranks.
struct RegisteredCase {
  Collective collective = Collective::all_reduce;
  std::size_t count = 3000;
  bool in_place = false;
  std::uint64_t seed = 1;
  DataType type = DataType::float32;
  std::size_t at = kBefore;
};

// How it was made.
enum class Made { whole, in_parts };

// Parts of 4 KiB, 12 KiB and so on, which no buffer of a call fits.
inline std::vector<std::size_t> parts_for(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  std::vector<std::size_t> parts;
  std::size_t next = kPage;
  for (std::size_t sum = 0; sum < bytes; sum += parts.back(), next = next % (6 * kPage) + 2 * kPage)
    parts.push_back(next);
  return parts;
}

// Memory of a rank, an allocation of its own.
class Piece {
 public:
  Piece(Member& member, Rank rank, std::size_t bytes, Made made = Made::whole)
      : member_(member),
        rank_(rank),
        bytes_(bytes),
        made_(made),
        memory_(made == Made::whole ? *member.device->allocate(bytes)
                                    : member.device->allocate_parts(parts_for(bytes))) {}
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece() {
    if (registration_ != 0 && member_.world) {
      EXPECT_TRUE(deregister().ok());
    }
    if (made_ == Made::whole)
      member_.device->deallocate(memory_);
    else
      member_.device->deallocate_parts(memory_);
  }

  std::byte* memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }
  GpuRank& rank() const { return member_.world->rank(rank_); }
  bool is_registered() const { return registration_ != 0; }

  Status register_now() {
    const auto made = rank().register_memory(memory_, bytes_);
    if (made.ok()) registration_ = *made;
    return made.status();
  }
  // Until all peers have it mapped.
  void wait_until_mapped() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!rank().is_mapped(memory_, bytes_) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_TRUE(rank().is_mapped(memory_, bytes_));
  }
  Status deregister() { return rank().deregister_memory(std::exchange(registration_, 0)); }

 private:
  Member& member_;
  const Rank rank_;
  const std::size_t bytes_;
  const Made made_;
  std::byte* const memory_;
  Regions::Registration registration_ = 0;
};

// A piece of each rank's.
using Pieces = std::vector<std::unique_ptr<Piece>>;

inline Pieces pieces_of(std::vector<Member>& members, std::size_t bytes = 256 * 1024,
                        Made made = Made::whole) {
  Pieces pieces;
  for (std::size_t i = 0; i < members.size(); ++i)
    pieces.push_back(std::make_unique<Piece>(members[i], static_cast<Rank>(i), bytes, made));
  return pieces;
}

inline void register_all(Pieces& pieces) {
  for (const auto& piece : pieces) ASSERT_TRUE(piece->register_now().ok());
  for (const auto& piece : pieces) piece->wait_until_mapped();
}

inline CallData data_of(const RegisteredCase& what, std::size_t ranks) {
  ScheduleShape shape;
  shape.collective = what.collective;
  shape.ranks = static_cast<int>(ranks);
  shape.root = shape.ranks - 1;
  return CallData({shape, what.type, ReduceOp::sum, what.count, what.in_place, what.seed});
}

inline GpuCall call_in(const RegisteredCase& what, const CallData& data, Rank rank,
                       std::byte* memory, std::size_t ranks) {
  GpuCall call;
  call.collective = what.collective;
  call.root = static_cast<Rank>(ranks) - 1;
  call.type = what.type;
  call.count = what.count;
  call.input = memory + what.at + data.seat(rank).input_at;
  call.output = memory + what.at + data.seat(rank).output_at;
  return call;
}

// The call of all ranks in their pieces gives what its contract says.
inline void expect_call_in(std::vector<Member>& members, const Pieces& pieces,
                           const RegisteredCase& what) {
  const CallData data = data_of(what, members.size());
  for_all(members, [&](Member& member, Rank rank) {
    const std::vector<std::byte>& image = data.seat(rank).image;
    std::byte* const memory = pieces[static_cast<std::size_t>(rank)]->memory();
    std::memcpy(memory + what.at, image.data(), image.size());
    const Status status =
        call_and_wait(member, rank, call_in(what, data, rank, memory, members.size()));
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(data.judge(rank, memory + what.at), "") << to_string(what.collective);
  });
}

// Messages that have come to this rank through slots. Requires  nothing is under way.
inline std::uint64_t queued(const Member& member) {
  const Launch last = member.device->last_launch();
  if (last.world == nullptr) return 0;
  const DeviceWorld& world = *last.world;
  std::uint64_t sum = 0;
  for (std::uint32_t peer = 0; peer < world.shape.ranks; ++peer)
    for (std::uint32_t channel = 0; channel < world.shape.channels; ++channel)
      sum += reinterpret_cast<const Mailbox*>(world.inboxes[peer] + world.shape.mailbox_at(channel))
                 ->filled;
  return sum;
}

inline std::uint64_t queued(const std::vector<Member>& members) {
  std::uint64_t sum = 0;
  for (const Member& member : members) sum += queued(member);
  return sum;
}

}  // namespace tutti::runtime::gpu

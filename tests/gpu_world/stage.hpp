// stage.hpp: a device world with a stream and memory for every rank, on which collective calls are
// made with the data of call_data.hpp. The same on a GPU and on threads.
//
// Knows devices only as device.hpp tells them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/call_data.hpp"
#include "runtime/gpu/host/world.hpp"

namespace tutti::runtime::gpu {

// One call of all ranks.
struct StageCase {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  std::size_t count = 0;
  bool in_place = false;
  std::uint64_t seed = 0;  // of data, and of where buffers lie
  bool scaled = false;     // by a factor of each rank's own: of a sum

  std::string text() const;
};

class Stage {
 public:
  static Result<std::unique_ptr<Stage>> make(std::span<Device* const> devices,
                                             const GpuOptions& options = {});
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage();

  GpuWorld& world() { return *world_; }
  int ranks() const { return world_->ranks(); }
  StreamHandle stream(Rank rank) const { return seats_[static_cast<std::size_t>(rank)].stream; }

  // All of it: ok, or what went wrong.
  Status run(const StageCase& what);

  // One part after the other. Requires  nothing is under way.
  Status set(const StageCase& what);  // lays buffers out and fills them
  Status refill(std::uint64_t seed);  // the same buffers with other data
  GpuCall call_of(Rank rank) const;   // what the rank is to ask for
  Status launch(Rank rank);           // asks for it on the rank's stream
  Status launch_all();                // the same for all, from this thread
  Status synchronize();               // the first failure of a rank
  Status judge();                     // internal: what is wrong

 private:
  struct Seat {
    Device* device = nullptr;
    StreamHandle stream = nullptr;
    std::byte* arena = nullptr;
    std::size_t arena_bytes = 0;
  };
  Stage() = default;

  Status copy_images();

  std::vector<Seat> seats_;
  std::unique_ptr<GpuWorld> world_;
  StageCase what_;
  CallData data_;
};

}  // namespace tutti::runtime::gpu

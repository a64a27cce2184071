// device_stock.hpp: the devices that worlds of this process are on, and what of each is taken: of
// how many blocks, and of how many streams, a device is sure to run the kernels beside each other.
//
// Kernels wait for those of their peers, so that two worlds whose blocks do not fit their device
// together could hold each other up for ever. Here no world gets what another one has.
//
// Knows nothing of CUDA, or of other processes on the same devices: those take turns.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/gpu/host/world.hpp"

namespace tutti::runtime::gpu {

// Threading  any thread. Lifetime  longer than its worlds'.
class DeviceStock {
 public:
  // Makes device `ordinal`; once for each that is used.
  using Make = std::function<Result<std::unique_ptr<Device>>(int ordinal)>;
  explicit DeviceStock(Make make) : make_(std::move(make)) {}
  DeviceStock(const DeviceStock&) = delete;
  DeviceStock& operator=(const DeviceStock&) = delete;

  // The GPUs of this process; never destroyed, because streams may outlive static objects.
  static DeviceStock& of_process();

  // A world, and what it has taken until it goes.
  class Tenancy {
   public:
    ~Tenancy();
    // Requires  there is one.
    GpuWorld& world() { return *world_; }

    // Of a seat: as many channels as it has for the rank.
    int channels() const { return channels_; }
    // Of a seat: joins a world with so many of them, and gives back the others.
    // Errors  those of GpuWorld::join().
    Status join(GpuSeat seat, const GpuOptions& options);

   private:
    friend class DeviceStock;
    explicit Tenancy(DeviceStock& stock) : stock_(stock) {}
    DeviceStock& stock_;
    std::map<int, int> ranks_;  // by device
    int channels_ = 0;          // 0: nothing has been taken
    std::unique_ptr<GpuWorld> world_;
  };

  // The rank of every entry on the device of that number. With `options.channels` 0, a world takes
  // half of what is left at most, so that others find room.
  // Blocking  for as long as the making of devices and of control memory takes.
  // Errors    those of GpuWorld::make(); unsupported: what is left of a device is not enough.
  Result<std::unique_ptr<Tenancy>> make_world(std::span<const int> ordinals, GpuOptions options);

  // Room for one rank of a world of several processes, `ranks` of which are in this process and on
  // this device. No world yet. Errors  as make_world().
  Result<std::unique_ptr<Tenancy>> take_seat(int ordinal, int ranks);

  // Takes back what an aborted world, or one that a rank leaves before others, has taken, without
  // waiting for streams: its kernels leave by themselves. Its memory goes when a later world is
  // made and nobody needs it any more.
  void retire(std::unique_ptr<Tenancy> tenancy);

 private:
  struct Entry {
    std::unique_ptr<Device> device;
    int blocks = 0;  // at once, of so many threads as kernels have at most
    int streams = 0;
    int blocks_taken = 0;
    int streams_taken = 0;
  };

  Result<Entry*> entry(int ordinal);
  Result<int> room_for(const Entry& here, int ranks, int channels) const;
  void give_back(Tenancy& tenancy);
  std::vector<std::unique_ptr<Tenancy>> take_what_is_over();

  const Make make_;
  std::mutex mutex_;
  std::map<int, Entry> entries_;
  std::vector<std::unique_ptr<Tenancy>> retired_;
};

}  // namespace tutti::runtime::gpu

// device_meeting.hpp: how the ranks of a new communicator find out that kernels can make their
// calls in device memory: each has a device, the settings allow it, the devices hold the kernels of
// all at once, and reach the memory of those of their host; what goes to other hosts is carried.
// All ranks come to the same answer.
#pragma once

#include <memory>
#include <span>

#include "nccl/device_group.hpp"
#include "nccl/device_side.hpp"
#include "tutti/communicator.hpp"

namespace tutti::nccl {

// What the caller of a rank asked for.
struct DeviceWishes {
  bool copy_engines = false;  // besides what the environment says
  bool blocking = true;       // who must not block cannot meet others in each call
};

// The group; null: calls in device memory are staged in the host's, on all ranks. All ranks of the
// communicator call it, each with its own place.
// Blocking  until all have. Errors  those of the exchange.
Result<std::shared_ptr<DeviceGroup>> meet_on_devices(Communicator& communicator,
                                                     const DevicePlace& place,
                                                     const DeviceWishes& wishes = {});

// The same where all places are known to one who speaks for all ranks.
std::shared_ptr<DeviceGroup> group_of_process(std::span<const DevicePlace> places);

}  // namespace tutti::nccl

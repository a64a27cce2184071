// joint_graph.cc: see joint_graph.hpp.
#include "gpu_world/joint_graph.hpp"

#include <vector>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

// Events that last as long as the capture that they are recorded in.
class Events {
 public:
  explicit Events(Device& device) : device_(device) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (const EventHandle event : events_) device_.destroy_event(event);
  }

  // `later` goes on when `earlier` has come here.
  Status order(StreamHandle earlier, StreamHandle later) {
    const auto event = device_.make_event();
    TUTTI_TRY(event);
    events_.push_back(*event);
    TUTTI_TRY(device_.record(*event, earlier));
    return device_.wait_event(later, *event);
  }

 private:
  Device& device_;
  std::vector<EventHandle> events_;
};

}  // namespace

Result<GraphHandle> capture_jointly(Device& device, std::span<const StreamHandle> streams,
                                    const std::function<Status()>& enqueue) {
  const StreamHandle first = streams.front();
  const auto others = streams.subspan(1);
  Events events(device);
  TUTTI_TRY(device.begin_capture(first));
  Status status;
  for (const StreamHandle other : others)
    if (status.ok()) status = events.order(first, other);
  if (status.ok()) status = enqueue();
  for (const StreamHandle other : others)
    if (status.ok()) status = events.order(other, first);
  const auto graph = device.end_capture(first);
  if (status.ok()) return graph;
  if (graph.ok()) device.destroy_graph(*graph);
  return status;
}

}  // namespace tutti::runtime::gpu

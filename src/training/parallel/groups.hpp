// groups.hpp: the communicators of a mesh: one for each axis, or combination of axes, that this
// rank does something along.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "training/parallel/pipeline_links.hpp"
#include "training/plan/mesh.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

// Lifetime  of the world: longer.
struct Groups {
  Mesh mesh;
  Coordinates at;  // this rank's
  Communicator* world = nullptr;

  Communicator tp;
  Communicator copies;  // tensor-parallel ranks that hold the same key and value heads
  Communicator ep;
  // Those who compute with other data: all, who share the parts of what is sharded, and who have
  // the same part. Of the experts' weights, which fewer ranks have, others.
  Communicator data, shard, replica;
  Communicator expert_data, expert_shard, expert_replica;
  // The first and the last pipeline stage, for weights that they tie; empty elsewhere.
  std::optional<Communicator> ends;
  PipelineLinks links;
};

// Splits the world. Collective over it; `kv_heads` are the model's.
// Errors  invalid_argument where experts' weights cannot be shared as asked, and the world's own.
Result<std::unique_ptr<Groups>> make_groups(Communicator& world, const Mesh& mesh, int kv_heads);

}  // namespace tutti::training

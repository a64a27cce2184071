// groups.cc: see groups.hpp.
#include "training/parallel/groups.hpp"

#include <string>
#include <utility>

namespace tutti::training {
namespace {

struct ColorAndKey {
  int color, key;
};

// Experts are dealt out to `ep` consecutive ranks of those with other data. Those who have the same
// experts are, of each `ep`, the ranks at one place; which of them share parts and which are
// replicas follows from how the others do.
ColorAndKey expert_shard(const Mesh& mesh, const Coordinates& at) {
  Coordinates first = at;
  if (mesh.dp_shard % mesh.ep != 0) return {rank_of(mesh, at), 0};
  first.dp_shard = at.dp_shard % mesh.ep;
  return {rank_of(mesh, first), at.dp_shard};
}

ColorAndKey expert_replica(const Mesh& mesh, const Coordinates& at) {
  Coordinates first = at;
  const int apart = mesh.dp_shard % mesh.ep == 0 ? 1 : mesh.ep / mesh.dp_shard;
  first.dp_replicate = at.dp_replicate % apart;
  return {rank_of(mesh, first), at.dp_replicate};
}

// Collects what the splits give, and the first that fails.
class Splitter {
 public:
  Splitter(Communicator& world, const Mesh& mesh) : world_(world), mesh_(mesh) {}

  Communicator along(MeshAxis axis) {
    const GroupSplit split = group_split(mesh_, axis, world_.rank());
    return by({split.color, split.key}, std::string(to_string(axis)));
  }

  Communicator by(const ColorAndKey& with, const std::string& name) {
    if (!status_.ok()) return {};
    auto made = world_.split(with.color, with.key);
    if (made.ok()) return std::move(*made);
    status_ = made.status().with_context("communicator of axis " + name);
    return {};
  }

  const Status& status() const { return status_; }

 private:
  Communicator& world_;
  const Mesh& mesh_;
  Status status_;
};

Status check_experts(const Mesh& mesh) {
  if (mesh.dp_shard % mesh.ep == 0 || mesh.ep % mesh.dp_shard == 0) return {};
  return Status(StatusCode::invalid_argument,
                "ep " + std::to_string(mesh.ep) + " neither divides dp_shard " +
                    std::to_string(mesh.dp_shard) +
                    " nor is a multiple of it, so that the ranks "
                    "with the same experts would not share them evenly");
}

}  // namespace

Result<std::unique_ptr<Groups>> make_groups(Communicator& world, const Mesh& mesh, int kv_heads) {
  if (const Status status = check_experts(mesh); !status.ok()) return status;
  auto groups = std::make_unique<Groups>();
  groups->mesh = mesh;
  groups->at = coordinates_of(mesh, world.rank());
  groups->world = &world;

  Splitter split(world, mesh);
  groups->tp = split.along(MeshAxis::tp);
  groups->ep = split.along(MeshAxis::ep);
  groups->data = split.along(MeshAxis::dp);
  groups->shard = split.along(MeshAxis::dp_shard);
  groups->replica = split.along(MeshAxis::dp_replicate);
  groups->expert_data = split.along(MeshAxis::edp);
  groups->expert_shard = split.by(expert_shard(mesh, groups->at), "experts' shard");
  groups->expert_replica = split.by(expert_replica(mesh, groups->at), "experts' replica");
  Communicator ends = split.along(MeshAxis::embedding);
  if (mesh.pp > 1 && (groups->at.pp == 0 || groups->at.pp + 1 == mesh.pp))
    groups->ends = std::move(ends);
  const int same = mesh.tp > kv_heads ? mesh.tp / kv_heads : 1;
  groups->copies = split.by({world.rank() / same, world.rank()}, "key and value heads");
  Communicator stages = split.along(MeshAxis::pp);
  if (!split.status().ok()) return split.status();

  auto links = PipelineLinks::make(stages);
  if (!links.ok()) return links.status();
  groups->links = std::move(*links);
  return groups;
}

}  // namespace tutti::training

// mesh.hpp: which rank has which place in a training job: pipeline stage, replica, shard and
// tensor-parallel part, and with whom it forms a group along each of these axes.
//
// Pure arithmetic on rank numbers: it knows nothing of communicators, and says only by which color
// and key to split one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::training {

// Which axis has its ranks farthest apart. Tensor-parallel ranks are always next to each other.
enum class MeshOrder : unsigned char {
  pipeline_outermost,  // rank = ((pp * R + replicate) * S + shard) * T + tp, as torchtitan
  data_outermost,      // rank = ((replicate * S + shard) * P + pp) * T + tp, as Llama 3
};

// What a user asks for. One of the degrees that multiply to the world (not ep) may be -1: the rest.
struct MeshOptions {
  int pp = 1;                // pipeline stages
  int dp_replicate = 1;      // copies of a sharded model (the outer axis of HSDP)
  int dp_shard = -1;         // ranks that share one copy's states (ZeRO, FSDP)
  int cp = 1;                // context parallelism: reserved
  int tp = 1;                // tensor parallelism
  int ep = 1;                // expert parallelism: borrows ranks of dp_replicate x dp_shard
  std::int64_t experts = 0;  // of the model; 0: it has none
  MeshOrder order = MeshOrder::pipeline_outermost;
};

// Degrees that fit a world. make_mesh() makes one that is valid.
struct Mesh {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = 1;
  int cp = 1;
  int tp = 1;
  int ep = 1;
  MeshOrder order = MeshOrder::pipeline_outermost;

  int dp() const { return dp_replicate * dp_shard; }
  int edp() const { return dp() / ep; }  // ranks that hold the same experts
  int world() const { return pp * dp() * cp * tp; }

  // "pp 2 x dp_replicate 1 x dp_shard 2 x tp 2 = 8"
  std::string to_string() const;

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// Errors  invalid_argument with the equation that does not hold; unsupported for cp other than 1.
Result<Mesh> make_mesh(const MeshOptions& options, int world);

// A rank's place.
struct Coordinates {
  int pp = 0;
  int dp_replicate = 0;
  int dp_shard = 0;
  int tp = 0;

  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

// The two are each other's inverse.
// Requires  0 <= rank < mesh.world(); coordinates below their degrees.
Coordinates coordinates_of(const Mesh& mesh, int rank);
int rank_of(const Mesh& mesh, const Coordinates& at);

// Along what ranks form groups.
enum class MeshAxis : unsigned char {
  tp,
  dp_shard,
  dp_replicate,
  dp,         // replicate x shard, shards next to each other
  ep,         // consecutive ranks of dp, which together hold all experts
  edp,        // ranks of dp at the same place in their ep group: the same experts
  pp,         // the stages, in order
  embedding,  // first and last stage, which share a tied embedding; other ranks are in none
};

inline constexpr std::array<MeshAxis, 8> kMeshAxes = {
    MeshAxis::tp, MeshAxis::dp_shard, MeshAxis::dp_replicate, MeshAxis::dp,
    MeshAxis::ep, MeshAxis::edp,      MeshAxis::pp,           MeshAxis::embedding};

std::string_view to_string(MeshAxis axis);

// How many ranks a group along `axis` has.
int group_size(const Mesh& mesh, MeshAxis axis);

// The ranks of the group that `rank` is in, in the order of their indices; empty if in none.
std::vector<int> group_members(const Mesh& mesh, MeshAxis axis, int rank);

// What to split the world's communicator with.
struct GroupSplit {
  int color = -1;  // the group's first rank, or -1 for a rank that is in none
  int key = 0;     // the rank's index in its group

  friend bool operator==(const GroupSplit&, const GroupSplit&) = default;
};

GroupSplit group_split(const Mesh& mesh, MeshAxis axis, int rank);

}  // namespace tutti::training

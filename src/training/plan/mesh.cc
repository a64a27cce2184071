// mesh.cc: degrees to ranks and back, and groups along axes.
//
// Every axis is a way to number some ranks by an index, the other coordinates staying: a group is
// what one gets by running through that index.
#include "training/plan/mesh.hpp"

#include <fmt/format.h>

#include <utility>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

// No world is larger, so that products of ranks stay within an int.
constexpr int kLargestWorld = 1 << 24;

struct Degree {
  std::string_view name;
  int* value;
};

std::array<Degree, 4> world_degrees(Mesh& mesh) {
  return {{{"pp", &mesh.pp},
           {"dp_replicate", &mesh.dp_replicate},
           {"dp_shard", &mesh.dp_shard},
           {"tp", &mesh.tp}}};
}

// Exact up to 2^53, and never wrong about whether it is a world's size.
double product_of(const std::array<Degree, 4>& degrees) {
  double product = 1;
  for (const Degree& degree : degrees) product *= *degree.value;
  return product;
}

// "pp 2 x dp_replicate 1 x dp_shard 2 x tp 2 = 8"
std::string equation(const std::array<Degree, 4>& degrees) {
  std::string text;
  for (const Degree& degree : degrees)
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", degree.name, *degree.value);
  return fmt::format("{} = {:.0f}", text, product_of(degrees));
}

Status invalid(std::string text) { return {StatusCode::invalid_argument, std::move(text)}; }

// Turns the degree that is -1 into what the others leave of the world.
Status fill_in_rest(const std::array<Degree, 4>& degrees, int world) {
  const Degree* rest = nullptr;
  for (const Degree& degree : degrees) {
    if (*degree.value > 0) continue;
    if (*degree.value != -1)
      return invalid(fmt::format("{} is {}, but a degree is at least 1 (or -1: the rest)",
                                 degree.name, *degree.value));
    if (rest != nullptr)
      return invalid(fmt::format("both {} and {} are -1, but only one can be the rest", rest->name,
                                 degree.name));
    rest = &degree;
  }
  if (rest == nullptr) return {};

  *rest->value = 1;
  const double others = product_of(degrees);
  if (others > world || world % static_cast<int>(others) != 0) {
    return invalid(fmt::format("{} with {} left at 1, which does not divide the world of {} ranks",
                               equation(degrees), rest->name, world));
  }
  *rest->value = world / static_cast<int>(others);
  return {};
}

Status check_experts(const MeshOptions& options, const Mesh& mesh) {
  const int ep = options.ep;
  if (ep < 1) return invalid(fmt::format("ep is {}, but a degree is at least 1", ep));
  if (ep == 1) return {};
  if (mesh.dp() % ep != 0) {
    return invalid(
        fmt::format("ep {} does not divide dp_replicate {} x dp_shard {} = {}, whose ranks it "
                    "borrows",
                    ep, mesh.dp_replicate, mesh.dp_shard, mesh.dp()));
  }
  if (options.experts <= 0)
    return invalid(fmt::format("ep is {}, but the model has no experts", ep));
  if (options.experts % ep != 0)
    return invalid(
        fmt::format("ep {} does not divide the model's {} experts", ep, options.experts));
  return {};
}

// A rank's place on the data axis, whatever the mesh's order.
int dp_index(const Mesh& mesh, const Coordinates& at) {
  return at.dp_replicate * mesh.dp_shard + at.dp_shard;
}

void set_dp_index(const Mesh& mesh, Coordinates& at, int index) {
  at.dp_replicate = index / mesh.dp_shard;
  at.dp_shard = index % mesh.dp_shard;
}

// The index of a rank in its group; -1 in none.
int index_along(const Mesh& mesh, MeshAxis axis, const Coordinates& at) {
  switch (axis) {
    case MeshAxis::tp:
      return at.tp;
    case MeshAxis::dp_shard:
      return at.dp_shard;
    case MeshAxis::dp_replicate:
      return at.dp_replicate;
    case MeshAxis::dp:
      return dp_index(mesh, at);
    case MeshAxis::ep:
      return dp_index(mesh, at) % mesh.ep;
    case MeshAxis::edp:
      return dp_index(mesh, at) / mesh.ep;
    case MeshAxis::pp:
      return at.pp;
    case MeshAxis::embedding:
      return at.pp == 0 ? 0 : at.pp == mesh.pp - 1 ? 1 : -1;
  }
  TRAINING_CHECK(false, "every axis has an index");
}

// The rank that is at `index` of the group of the rank at `at`.
int rank_along(const Mesh& mesh, MeshAxis axis, Coordinates at, int index) {
  switch (axis) {
    case MeshAxis::tp:
      at.tp = index;
      break;
    case MeshAxis::dp_shard:
      at.dp_shard = index;
      break;
    case MeshAxis::dp_replicate:
      at.dp_replicate = index;
      break;
    case MeshAxis::dp:
      set_dp_index(mesh, at, index);
      break;
    case MeshAxis::ep:
      set_dp_index(mesh, at, dp_index(mesh, at) / mesh.ep * mesh.ep + index);
      break;
    case MeshAxis::edp:
      set_dp_index(mesh, at, index * mesh.ep + dp_index(mesh, at) % mesh.ep);
      break;
    case MeshAxis::pp:
      at.pp = index;
      break;
    case MeshAxis::embedding:
      at.pp = index == 0 ? 0 : mesh.pp - 1;
      break;
  }
  return rank_of(mesh, at);
}

}  // namespace

std::string Mesh::to_string() const {
  Mesh copy = *this;
  return equation(world_degrees(copy));
}

Result<Mesh> make_mesh(const MeshOptions& options, int world) {
  if (world < 1 || world > kLargestWorld)
    return invalid(fmt::format("a world has 1 to {} ranks, not {}", kLargestWorld, world));
  if (options.cp != 1) {
    return Status(
        StatusCode::unsupported,
        fmt::format("cp is {}, but context parallelism is reserved: it must be 1", options.cp));
  }
  Mesh mesh{options.pp, options.dp_replicate, options.dp_shard, options.cp,
            options.tp, options.ep,           options.order};
  const std::array<Degree, 4> degrees = world_degrees(mesh);
  if (Status filled = fill_in_rest(degrees, world); !filled.ok()) return filled;
  if (product_of(degrees) != world)
    return invalid(fmt::format("{}, but the world has {} ranks", equation(degrees), world));
  if (Status experts = check_experts(options, mesh); !experts.ok()) return experts;
  return mesh;
}

Coordinates coordinates_of(const Mesh& mesh, int rank) {
  TRAINING_CHECK(rank >= 0 && rank < mesh.world(), "a rank of the world");
  Coordinates at;
  at.tp = rank % mesh.tp;
  const int rest = rank / mesh.tp;
  if (mesh.order == MeshOrder::pipeline_outermost) {
    set_dp_index(mesh, at, rest % mesh.dp());
    at.pp = rest / mesh.dp();
  } else {
    at.pp = rest % mesh.pp;
    set_dp_index(mesh, at, rest / mesh.pp);
  }
  return at;
}

int rank_of(const Mesh& mesh, const Coordinates& at) {
  const int dp = dp_index(mesh, at);
  const int outer =
      mesh.order == MeshOrder::pipeline_outermost ? at.pp * mesh.dp() + dp : dp * mesh.pp + at.pp;
  return outer * mesh.tp + at.tp;
}

std::string_view to_string(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::tp:
      return "tp";
    case MeshAxis::dp_shard:
      return "dp_shard";
    case MeshAxis::dp_replicate:
      return "dp_replicate";
    case MeshAxis::dp:
      return "dp";
    case MeshAxis::ep:
      return "ep";
    case MeshAxis::edp:
      return "edp";
    case MeshAxis::pp:
      return "pp";
    case MeshAxis::embedding:
      return "embedding";
  }
  return "unknown axis";
}

int group_size(const Mesh& mesh, MeshAxis axis) {
  switch (axis) {
    case MeshAxis::tp:
      return mesh.tp;
    case MeshAxis::dp_shard:
      return mesh.dp_shard;
    case MeshAxis::dp_replicate:
      return mesh.dp_replicate;
    case MeshAxis::dp:
      return mesh.dp();
    case MeshAxis::ep:
      return mesh.ep;
    case MeshAxis::edp:
      return mesh.edp();
    case MeshAxis::pp:
      return mesh.pp;
    case MeshAxis::embedding:
      return mesh.pp > 1 ? 2 : 1;
  }
  TRAINING_CHECK(false, "every axis has a size");
}

std::vector<int> group_members(const Mesh& mesh, MeshAxis axis, int rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  std::vector<int> members;
  if (index_along(mesh, axis, at) < 0) return members;
  for (int index = 0; index < group_size(mesh, axis); ++index)
    members.push_back(rank_along(mesh, axis, at, index));
  return members;
}

GroupSplit group_split(const Mesh& mesh, MeshAxis axis, int rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  const int index = index_along(mesh, axis, at);
  if (index < 0) return {};
  return {rank_along(mesh, axis, at, 0), index};
}

}  // namespace tutti::training

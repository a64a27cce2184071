// Max flow (Dinic's algorithm) and what it says about each collective.
#include "collectives/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <queue>

#include "base/try.hpp"

namespace tutti::collectives {
namespace {

// More seats than this are not all tested; the bound is then weaker, but still one.
constexpr int kSeatsTested = 64;
// All cuts are tried for all-to-all up to so many seats.
constexpr int kSeatsEnumerated = 10;
constexpr double kTolerance = 1e-9;

std::size_t index(int value) { return static_cast<std::size_t>(value); }

// Dinic's algorithm; arcs 2k and 2k+1 are each other's residual.
class MaxFlow {
 public:
  explicit MaxFlow(int vertices) : arcs_at_(index(vertices)) {}

  void add(int from, int to, double capacity) {
    arcs_at_[index(from)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({to, capacity});
    arcs_at_[index(to)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({from, 0});
    largest_ = std::max(largest_, capacity);
  }

  double run(int from, int to) {
    double flow = 0;
    while (find_levels(from, to)) {
      next_.assign(arcs_at_.size(), 0);
      while (true) {
        const double pushed = push(from, to, std::numeric_limits<double>::infinity());
        if (pushed <= 0) break;
        flow += pushed;
      }
    }
    return flow;
  }

  // After run(): what can still be reached.
  bool reached(int vertex) const { return level_[index(vertex)] >= 0; }

 private:
  struct Arc {
    int to;
    double left;
  };

  bool is_open(const Arc& arc) const { return arc.left > largest_ * 1e-12; }

  bool find_levels(int from, int to) {
    level_.assign(arcs_at_.size(), -1);
    level_[index(from)] = 0;
    std::queue<int> open;
    open.push(from);
    for (; !open.empty(); open.pop())
      for (const int a : arcs_at_[index(open.front())]) {
        const Arc& arc = arcs_[index(a)];
        if (!is_open(arc) || level_[index(arc.to)] >= 0) continue;
        level_[index(arc.to)] = level_[index(open.front())] + 1;
        open.push(arc.to);
      }
    return level_[index(to)] >= 0;
  }

  double push(int at, int to, double most) {
    if (at == to) return most;
    for (std::size_t& i = next_[index(at)]; i < arcs_at_[index(at)].size(); ++i) {
      const int a = arcs_at_[index(at)][i];
      Arc& arc = arcs_[index(a)];
      if (!is_open(arc) || level_[index(arc.to)] != level_[index(at)] + 1) continue;
      const double pushed = push(arc.to, to, std::min(most, arc.left));
      if (pushed <= 0) continue;
      arc.left -= pushed;
      arcs_[index(a ^ 1)].left += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<std::vector<int>> arcs_at_;
  std::vector<Arc> arcs_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
  double largest_ = 0;
};

// The capacity that leaves a set.
double leaving(const FlowGraph& graph, const std::vector<bool>& inside) {
  double capacity = 0;
  for (const FlowGraph::Arc& arc : graph.arcs)
    if (inside[index(arc.from)] && !inside[index(arc.to)]) capacity += arc.capacity;
  return capacity;
}

int ranks_inside(const FlowGraph& graph, const std::vector<bool>& inside) {
  int ranks = 0;
  for (int v = 0; v < graph.vertices; ++v)
    if (inside[index(v)]) ranks += graph.ranks_at[index(v)];
  return ranks;
}

std::vector<int> seats_of(const FlowGraph& graph) {
  std::vector<int> seats;
  for (int v = 0; v < graph.vertices; ++v)
    if (graph.ranks_at[index(v)] > 0) seats.push_back(v);
  return seats;
}

// The least capacity that separates all of `from` from all of `to`.
Cut min_cut_of_sets(const FlowGraph& graph, const std::vector<int>& from,
                    const std::vector<int>& to, double source_capacity = 0) {
  const bool is_set = source_capacity == 0;
  MaxFlow flow(graph.vertices + 2);
  double all = 1;
  for (const FlowGraph::Arc& arc : graph.arcs) {
    flow.add(arc.from, arc.to, arc.capacity);
    all += arc.capacity;
  }
  const int source = graph.vertices;
  const int sink = source + 1;
  for (const int v : from)
    flow.add(source, v, is_set ? all : source_capacity * graph.ranks_at[index(v)]);
  for (const int v : to) flow.add(v, sink, all * 2);
  flow.run(source, sink);
  Cut cut;
  for (int v = 0; v < graph.vertices; ++v) cut.inside.push_back(flow.reached(v));
  cut.capacity = leaving(graph, cut.inside);
  return cut;
}

}  // namespace

Cut min_cut(const FlowGraph& graph, int from, int to) {
  return min_cut_of_sets(graph, {from}, {to});
}

FlowGraph reversed(FlowGraph graph) {
  for (FlowGraph::Arc& arc : graph.arcs) std::swap(arc.from, arc.to);
  return graph;
}

// A rate r per rank is possible when, for every seat v, the flow from a source that feeds every
// rank with r can bring all of it to v. Where it cannot, the cut in the way allows a smaller rate
// only; go on with that one (Dinkelbach's method: each round finds a strictly worse cut).
Cut all_gather_cut(const FlowGraph& graph, int vertices_tested) {
  const std::vector<int> seats = seats_of(graph);
  Cut worst;
  worst.inside.assign(index(graph.vertices), true);
  for (const int v : seats)
    if (v != seats.front()) worst.inside[index(v)] = true;
  worst.inside[index(seats.front())] = false;
  worst.capacity = leaving(graph, worst.inside);
  double rate = worst.capacity / ranks_inside(graph, worst.inside);
  const std::size_t tested = vertices_tested < 0 ? seats.size() : index(vertices_tested);
  for (std::size_t i = 0; i < seats.size(); ++i) {
    // When only some are tested, they are spread evenly.
    if (seats.size() > tested && i * tested % seats.size() >= tested) continue;
    while (true) {
      const Cut cut = min_cut_of_sets(graph, seats, {seats[i]}, rate);
      const int ranks = ranks_inside(graph, cut.inside);
      if (ranks == 0 || cut.capacity / ranks >= rate * (1 - kTolerance)) break;
      rate = cut.capacity / ranks;
      worst = cut;
    }
  }
  return worst;
}

namespace {

// The machine's links as arcs. Links that the model does not charge never limit.
FlowGraph flow_graph(const Machine& machine) {
  const Topology& topology = machine.topology();
  FlowGraph graph;
  graph.vertices = static_cast<int>(topology.vertices().size());
  graph.ranks_at.assign(topology.vertices().size(), 0);
  for (const VertexId seat : machine.placement()) ++graph.ranks_at[index_of(seat)];
  double all = 1;
  for (const Link& link : topology.links()) all += link.bandwidth_ab + link.bandwidth_ba;
  // Data passes through a seat only where a rank can relay it.
  auto passes = [&](VertexId v) {
    const VertexKind kind = topology.vertex(v).kind;
    return graph.ranks_at[index_of(v)] > 0 || (kind != VertexKind::gpu && kind != VertexKind::core);
  };
  for (const Link& link : topology.links()) {
    if (!passes(link.a) || !passes(link.b)) continue;
    const bool free = !machine.is_charged(link);
    const int a = static_cast<int>(index_of(link.a));
    const int b = static_cast<int>(index_of(link.b));
    graph.arcs.push_back({a, b, free ? all : link.bandwidth_ab});
    graph.arcs.push_back({b, a, free ? all : link.bandwidth_ba});
  }
  return graph;
}

// "0-7, 16".
std::string rank_list(const Machine& machine, const std::vector<bool>& inside) {
  std::string text;
  const int n = machine.ranks();
  auto is_in = [&](int rank) {
    return rank < n && inside[index_of(machine.placement()[index(rank)])];
  };
  for (int rank = 0; rank < n; ++rank) {
    if (!is_in(rank)) continue;
    int last = rank;
    while (is_in(last + 1)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    if (last > rank) text += fmt::format("-{}", last);
    rank = last;
  }
  return text;
}

class BoundFinder {
 public:
  BoundFinder(Machine& machine, Collective collective, Rank root)
      : machine_(machine),
        collective_(collective),
        root_(root),
        n_(machine.ranks()),
        graph_(flow_graph(machine)) {
    graph_all_ = 1;
    for (const Link& link : machine.topology().links())
      graph_all_ += link.bandwidth_ab + link.bandwidth_ba;
  }

  Result<Bounds> find() {
    const bool alone = n_ < 2 || (collective_ == Collective::send_recv && root_ % n_ == 0);
    bounds_.latency_origin = bounds_.link_origin = "nothing travels";
    if (!alone) {
      TUTTI_TRY(find_latency());
      find_links();
    }
    if (n_ > 1) find_memory();
    return bounds_;
  }

 private:
  // ---- Latency ----

  // When the last of `n` ranks knows: everybody who knows tells others, one after the other.
  double spread_ns(double gap_ns, double travel_ns) const {
    std::priority_queue<double, std::vector<double>, std::greater<>>
        told;  // next one by each teller
    told.push(machine_.constants().step_ns + gap_ns + travel_ns);
    double last_ns = 0;
    for (int known = 1; known < n_; ++known) {
      last_ns = told.top();
      told.pop();
      told.push(last_ns + gap_ns);
      told.push(last_ns + gap_ns + travel_ns);
    }
    return last_ns;
  }

  Status find_latency() {
    const CostConstants& constants = machine_.constants();
    double best_ns = std::numeric_limits<double>::infinity();
    double hop_ns = best_ns;
    const int pairs_from = std::min(n_, kSeatsTested);
    for (Rank from = 0; from < pairs_from; ++from) {
      for (Rank to = 0; to < pairs_from; ++to) {
        if (to == from) continue;
        const Result<const Route*> route = machine_.route(from, to);
        TUTTI_TRY(route);
        const MessageOverhead& overhead = (*route)->overhead;
        const double travel_ns = (*route)->latency_ns + overhead.receive_ns + constants.step_ns;
        const double exchange_ns = (*route)->latency_ns + overhead.send_ns + overhead.receive_ns;
        const double direct_ns = (*route)->latency_ns + overhead.signal_ns + constants.step_ns;
        hop_ns = std::min(hop_ns, overhead.send_ns + travel_ns);
        best_ns = std::min({best_ns, one_or_all(overhead.send_ns, travel_ns),
                            exchange_ns + one_or_all(overhead.signal_ns, direct_ns)});
      }
    }
    bounds_.latency_ns = best_ns;
    bounds_.latency_origin =
        collective_ == Collective::send_recv
            ? fmt::format("one message of {:.0f} ns", hop_ns)
            : fmt::format("news of {:.0f} ns a hop to {} ranks, {} rounds", hop_ns, n_,
                          static_cast<int>(std::ceil(std::log2(n_))));
    return {};
  }

  double one_or_all(double gap_ns, double travel_ns) const {
    if (collective_ == Collective::send_recv)
      return machine_.constants().step_ns + gap_ns + travel_ns;
    return spread_ns(gap_ns, travel_ns);
  }

  // ---- Links ----

  void find_links() {
    switch (collective_) {
      case Collective::barrier:
        bounds_.link_origin = "no data";
        return;
      case Collective::all_gather:
        return gather(graph_, 1, "all-gather");
      case Collective::reduce_scatter:
        return gather(reversed(graph_), 1, "reduce-scatter");
      case Collective::all_reduce:
        gather(reversed(graph_), n_, "reduce-scatter + all-gather");
        return gather(graph_, n_, "reduce-scatter + all-gather");
      case Collective::broadcast:
        return flows_from_root(graph_, "to");
      case Collective::reduce:
        return flows_from_root(reversed(graph_), "from");
      case Collective::gather:
        return all_with_root(graph_, "into");
      case Collective::scatter:
        return all_with_root(reversed(graph_), "out of");
      case Collective::send_recv:
        return shift();
      case Collective::all_to_all:
        return all_to_all();
    }
  }

  bool is_unlimited(const Cut& cut) const { return cut.capacity >= graph_all_; }

  // Adds the time of an all-gather of parts of 1/parts.
  void gather(const FlowGraph& graph, int parts, std::string_view what) {
    const Cut cut = all_gather_cut(graph, kSeatsTested);
    if (is_unlimited(cut)) {
      bounds_.link_origin = "no link limits: ranks share memory";
      return;
    }
    const int ranks = ranks_inside(graph, cut.inside);
    bounds_.link_ns_per_byte += ranks / cut.capacity / parts;
    bounds_.link_origin = fmt::format("{}: {} between ranks {} and the rest", what,
                                      rate_text(cut.capacity), rank_list(machine_, cut.inside));
  }

  static std::string rate_text(double capacity) { return fmt::format("{:.5g} GB/s", capacity); }

  void flows_from_root(const FlowGraph& graph, std::string_view direction) {
    const int root = seat(root_);
    int tested = 0;
    double least = graph_all_;
    for (const int v : seats_of(graph)) {
      if (v == root || ++tested > kSeatsTested) continue;
      const Cut cut = min_cut(graph, root, v);
      if (cut.capacity >= least) continue;
      least = cut.capacity;
      bounds_.link_origin =
          fmt::format("max flow {} {}: {}", direction,
                      machine_.topology().vertices()[index(v)].name, rate_text(cut.capacity));
    }
    if (least < graph_all_)
      bounds_.link_ns_per_byte = 1 / least;
    else
      bounds_.link_origin = "no link limits: ranks share memory";
  }

  // Every other rank's block goes to the root of `graph`: over the cuts around the root and around
  // its node.
  void all_with_root(const FlowGraph& graph, std::string_view direction) {
    const Topology& topology = machine_.topology();
    const VertexId root = machine_.placement()[index(root_)];
    bounds_.link_origin = "no link limits: ranks share memory";
    for (const bool whole_node : {false, true}) {
      std::vector<int> near;
      std::vector<int> far;
      for (const int v : seats_of(graph)) {
        const auto vertex = static_cast<VertexId>(v);
        const bool is_near =
            whole_node ? topology.node_of(vertex) == topology.node_of(root) : vertex == root;
        (is_near ? near : far).push_back(v);
      }
      if (far.empty()) continue;
      const Cut cut = min_cut_of_sets(graph, far, near);
      const int ranks = ranks_inside(graph, cut.inside);
      if (is_unlimited(cut) || ranks / cut.capacity <= bounds_.link_ns_per_byte) continue;
      bounds_.link_ns_per_byte = ranks / cut.capacity;
      bounds_.link_origin =
          fmt::format("{} {} {} of rank {}, for the blocks of {} ranks", rate_text(cut.capacity),
                      direction, whole_node ? "the node" : "the seat", root_, ranks);
    }
  }

  void shift() {
    double least = graph_all_;
    bounds_.link_origin = "no link limits: ranks share memory";
    for (Rank rank = 0; rank < std::min(n_, kSeatsTested); ++rank) {
      const int to = seat((rank + root_) % n_);
      if (seat(rank) == to) continue;
      const Cut cut = min_cut(graph_, seat(rank), to);
      if (cut.capacity >= least) continue;
      least = cut.capacity;
      bounds_.link_ns_per_byte = 1 / least;
      bounds_.link_origin = fmt::format("max flow from rank {}: {}", rank, rate_text(least));
    }
  }

  // Every cut of seats: what must cross it over what can. All cuts of few seats; of many, those
  // around seats, around nodes and between nodes before and after.
  void all_to_all() {
    const std::vector<int> seats = seats_of(graph_);
    bounds_.link_origin = "no link limits: ranks share memory";
    if (static_cast<int>(seats.size()) <= kSeatsEnumerated) {
      for (std::size_t mask = 1; mask + 1 < std::size_t{1} << seats.size(); ++mask)
        try_cut(seats, [&](std::size_t i) { return (mask >> i & 1) != 0; });
      return;
    }
    const std::size_t tested = std::min(seats.size(), index(kSeatsTested));
    for (std::size_t k = 0; k < tested; ++k) {
      auto node = [&](std::size_t i) {
        return machine_.topology().node_of(static_cast<VertexId>(seats[i]));
      };
      try_cut(seats, [&](std::size_t i) { return i == k; });
      try_cut(seats, [&](std::size_t i) { return i != k; });
      try_cut(seats, [&](std::size_t i) { return node(i) == node(k); });
      try_cut(seats, [&](std::size_t i) { return node(i) <= node(k); });
    }
  }

  void try_cut(const std::vector<int>& seats, const std::function<bool(std::size_t)>& is_inside) {
    std::vector<int> from;
    std::vector<int> to;
    for (std::size_t i = 0; i < seats.size(); ++i) (is_inside(i) ? from : to).push_back(seats[i]);
    if (from.empty() || to.empty()) return;
    const Cut cut = min_cut_of_sets(graph_, from, to);
    if (is_unlimited(cut)) return;
    const double inside = ranks_inside(graph_, cut.inside);
    const double time = inside * (n_ - inside) / cut.capacity;
    if (time <= bounds_.link_ns_per_byte) return;
    bounds_.link_ns_per_byte = time;
    bounds_.link_origin = fmt::format("{} between ranks {} and the rest", rate_text(cut.capacity),
                                      rank_list(machine_, cut.inside));
  }

  int seat(Rank rank) const {
    return static_cast<int>(index_of(machine_.placement()[index(rank)]));
  }

  // ---- Memory ----

  // Blocks that must be read and written, by all ranks together, in place where that is possible.
  double blocks_touched() const {
    const double n = n_;
    switch (collective_) {
      case Collective::all_reduce:
        return n + n;
      case Collective::all_gather:
        return n + n * (n - 1);
      case Collective::reduce_scatter:
        return n * n + n;
      case Collective::broadcast:
        return 1 + (n - 1);
      case Collective::reduce:
        return n + 1;
      case Collective::gather:
      case Collective::scatter:
        return 2 * (n - 1);
      case Collective::all_to_all:
        return n * n + n * n;
      case Collective::send_recv:
        return n + n;
      case Collective::barrier:
        return 0;
    }
    return 0;
  }

  void find_memory() {
    std::map<std::uint32_t, double> rates;
    for (Rank rank = 0; rank < n_; ++rank)
      rates[machine_.processor(rank)] =
          machine_.rate(machine_.processor(rank)) / machine_.bytes_cost(rank, DataIn::caches).near;
    double all = 0;
    for (const auto& [processor, rate] : rates) all += rate;
    bounds_.memory_ns_per_byte = blocks_touched() / all;
    bounds_.memory_origin =
        fmt::format("{:.0f} blocks read or written at {:.5g} GB/s in all", blocks_touched(), all);
  }

  Machine& machine_;
  Collective collective_;
  Rank root_;
  int n_;
  FlowGraph graph_;
  double graph_all_ = 0;  // no less than all capacities together: what never limits
  Bounds bounds_;
};

}  // namespace

Result<Bounds> find_bounds(Machine& machine, Collective collective, Rank root) {
  return BoundFinder(machine, collective, root).find();
}

}  // namespace tutti::collectives

// The model: resources of a machine, and the graph of a schedule's steps; cost_walk.cc walks it.
#include "collectives/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "collectives/footprint.hpp"

namespace tutti::collectives {
namespace {

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

bool is_core_link(const Topology& topology, const Link& link) {
  return link.kind == LinkKind::memory && (topology.vertex(link.a).kind == VertexKind::core ||
                                           topology.vertex(link.b).kind == VertexKind::core);
}

// What a seat reads and writes together.
double processor_rate(const Topology& topology, VertexId seat, const CostConstants& constants) {
  if (topology.vertex(seat).kind == VertexKind::gpu) return constants.gpu_bytes_per_ns;
  double copy = 0;
  for (const LinkId id : topology.links_at(seat))
    if (is_core_link(topology, topology.link(id)))
      copy = std::max(copy, topology.link(id).bandwidth_ab);
  if (copy == 0) copy = constants.core_copy_bytes_per_ns;
  return copy * constants.processor_per_copy;
}

}  // namespace

// ---- Machine ----

Machine::Machine(const Topology& topology, const std::vector<VertexId>& placement,
                 const CostConstants& constants, const std::vector<int>& cores, bool one_machine)
    : topology_(topology), placement_(placement), constants_(constants), one_machine_(one_machine) {
  for (const Link& link : topology.links()) {
    rate_.push_back(link.bandwidth_ab);
    rate_.push_back(link.bandwidth_ba);
  }
  TUTTI_ASSERT(cores.empty() || cores.size() == placement.size(), "every rank runs on a core");
  std::map<int, std::pair<std::uint32_t, int>> known_cores;  // processor, ranks
  std::vector<const int*> ranks_on;                          // by rank: of its core
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    const int core = cores.empty() ? static_cast<int>(index_of(placement[rank])) : cores[rank];
    const auto [known, is_new] =
        known_cores.try_emplace(core, static_cast<std::uint32_t>(rate_.size()), 0);
    if (is_new) rate_.push_back(processor_rate(topology, placement[rank], constants));
    processor_.push_back(known->second.first);
    turn_.push_back(known->second.second++);
    ranks_on.push_back(&known->second.second);
  }
  for (const int* const ranks : ranks_on) sharers_.push_back(*ranks);
}

int Machine::most_sharers() const { return *std::max_element(sharers_.begin(), sharers_.end()); }

DataIn Machine::data_in(double bytes) const {
  const int most = most_sharers();
  const bool fits = 2 * bytes * most <= constants_.cache_bytes;
  return most > 1 && fits ? DataIn::caches : DataIn::memory;
}

SharedCoreBytes Machine::bytes_cost(Rank rank, DataIn where) const {
  if (sharers(rank) == 1) return {};
  return where == DataIn::caches ? constants_.in_caches : constants_.in_memory;
}

bool Machine::is_charged(const Link& link) const { return !is_core_link(topology_, link); }

Route Machine::make_route(Rank from, Rank to, const Path& path) const {
  Route route;
  const VertexId a = placement_[index(from)];
  const VertexId b = placement_[index(to)];
  bool network = false;
  for (const Hop& hop : path.hops) {
    const Link& link = topology_.link(hop.link);
    network |= link.kind == LinkKind::network;
    if (is_charged(link))
      route.links.push_back(static_cast<std::uint32_t>(capacity_index(topology_, hop)));
  }
  route.shares_memory = !network && topology_.node_of(a) == topology_.node_of(b);
  if (topology_.vertex(a).kind == VertexKind::gpu)
    route.overhead = network ? constants_.gpu_network : constants_.gpu;
  else
    route.overhead = network ? constants_.sockets : constants_.shared_memory;
  route.by_sockets = network && topology_.vertex(a).kind != VertexKind::gpu;
  if (route.by_sockets) {
    route.link_ns = route.overhead.send_ns + route.overhead.receive_ns;
    route.link_payload_ns = 2 * route.overhead.payload_ns;
    route.streams = one_machine_ && sharers(from) == 1 && sharers(to) == 1;
    if (sharers(from) > 1) route.overhead.send_ns += constants_.shared_socket_ns;
    if (sharers(to) > 1) route.overhead.receive_ns += constants_.shared_socket_ns;
  }
  // What one core wrote is in its own caches.
  route.in_one_seat = a == b;
  if (a == b) route.overhead.payload_ns = 0;
  route.latency_ns = path.latency_ns + route.overhead.wake_ns;
  return route;
}

Result<const Route*> Machine::route(Rank from, Rank to) {
  const std::pair<VertexId, VertexId> key{placement_[index(from)], placement_[index(to)]};
  std::unique_ptr<Route>& known = routes_[key];
  if (known == nullptr) {
    const Result<Path> path = find_path(topology_, key.first, key.second);
    TUTTI_TRY(path);
    known = std::make_unique<Route>(make_route(from, to, *path));
  }
  return static_cast<const Route*>(known.get());
}

Rank Machine::rank_of(std::uint32_t resource) const {
  const auto rank = std::find(processor_.begin(), processor_.end(), resource);
  return static_cast<Rank>(rank - processor_.begin());
}

std::string Machine::name(std::uint32_t resource) const {
  if (is_processor(resource)) {
    const Rank rank = rank_of(resource);
    return fmt::format("memory of rank {} ({}, {:.4g} GB/s)", rank,
                       topology_.vertex(placement_[index(rank)]).name, rate_[resource]);
  }
  const Link& link = topology_.links()[resource / 2];
  const bool reverse = resource % 2 != 0;
  return fmt::format("{} {} {} ({:.4g} GB/s)", topology_.vertex(reverse ? link.b : link.a).name,
                     link.half_duplex ? "--" : "->",
                     topology_.vertex(reverse ? link.a : link.b).name, rate_[resource]);
}

// ---- CostGraph ----

class CostGraphBuilder {
 public:
  CostGraphBuilder(const std::vector<LoweredProgram>& programs, Machine& machine, bool direct)
      : programs_(programs), machine_(machine), direct_(direct) {
    std::uint32_t steps = 0;
    for (const LoweredProgram& program : programs) {
      first_step_.push_back(steps);
      steps += static_cast<std::uint32_t>(program.steps.size());
    }
    graph_.steps_.resize(steps);
  }

  Result<CostGraph> build() {
    find_receivers();
    for (const LoweredProgram& program : programs_) TUTTI_TRY(add_program(program));
    index_received();
    index_dependents();
    graph_.sent_at_once_ = std::all_of(programs_.begin(), programs_.end(), is_sent_at_once) &&
                           std::none_of(graph_.messages_.begin(), graph_.messages_.end(),
                                        [](const Message& m) { return m.route->by_sockets; });
    graph_.one_round_ =
        graph_.sent_at_once_ && std::all_of(programs_.begin(), programs_.end(), hears_of_all);
    return std::move(graph_);
  }

 private:
  using Message = CostGraph::Message;
  using Step = CostGraph::Step;

  static bool hears_of_all(const LoweredProgram& program) {
    const auto one = [](std::int32_t messages) { return messages == 1; };
    return !program.peers.empty() && std::all_of(program.sends.begin(), program.sends.end(), one) &&
           std::all_of(program.receives.begin(), program.receives.end(), one);
  }

  static bool is_sent_at_once(const LoweredProgram& program) {
    const auto one_at_most = [](std::int32_t messages) { return messages <= 1; };
    const auto sends_at_once = [](const LoweredStep& step) {
      const bool sends =
          std::any_of(step.destinations.begin(), step.destinations.end(),
                      [](const LoweredOperand& to) { return to.kind == Operand::Kind::message; });
      return !sends || (step.kind == StepKind::copy && step.depends.empty() &&
                        step.sources[0].kind != Operand::Kind::message);
    };
    return std::all_of(program.sends.begin(), program.sends.end(), one_at_most) &&
           std::all_of(program.receives.begin(), program.receives.end(), one_at_most) &&
           std::all_of(program.steps.begin(), program.steps.end(), sends_at_once);
  }

  // receivers_[rank][stream][ordinal]: the step that takes the message from that peer.
  void find_receivers() {
    for (const LoweredProgram& program : programs_) {
      auto& streams = receivers_.emplace_back(program.peers.size());
      for (std::size_t s = 0; s < program.steps.size(); ++s)
        for (const LoweredOperand& source : program.steps[s].sources) {
          if (source.kind != Operand::Kind::message) continue;
          auto& taken = streams[index(source.stream)];
          if (taken.size() <= index(source.ordinal)) taken.resize(index(source.ordinal) + 1);
          taken[index(source.ordinal)] = step_id(program.rank, s);
        }
    }
  }

  std::uint32_t step_id(Rank rank, std::size_t step) const {
    return first_step_[index(rank)] + static_cast<std::uint32_t>(step);
  }

  DirectForm form_of(const LoweredOperand& operand, const Route& route) const {
    return direct_ && route.shares_memory ? operand.direct : DirectForm::none;
  }

  bool is_ready(const LoweredOperand& operand, const Route& route) const {
    return form_of(operand, route) != DirectForm::none && operand.at_arrival;
  }

  // What saying or hearing something about a message costs one end: of what is ready, only the end
  // that does the work says that it is done.
  double message_ns(const LoweredOperand& operand, const Route& route, double staged_ns) const {
    if (form_of(operand, route) == DirectForm::none) return staged_ns;
    return operand.mine && operand.at_arrival ? 0 : route.overhead.signal_ns;
  }

  Status add_program(const LoweredProgram& program) {
    double latency_ns = 0;
    double overhead_ns = 0;
    std::vector<const Route*> to;  // to each peer, and back
    std::vector<const Route*> from;
    std::vector<std::size_t> my_stream;  // at the peer
    for (const Rank peer : program.peers) {
      const Result<const Route*> out = machine_.route(program.rank, peer);
      TUTTI_TRY(out);
      const Result<const Route*> in = machine_.route(peer, program.rank);
      TUTTI_TRY(in);
      to.push_back(*out);
      from.push_back(*in);
      const auto& theirs = programs_[index(peer)].peers;
      my_stream.push_back(static_cast<std::size_t>(
          std::lower_bound(theirs.begin(), theirs.end(), program.rank) - theirs.begin()));
      latency_ns = std::max(latency_ns, (*in)->latency_ns);
      overhead_ns += (*out)->overhead.send_ns + (*in)->overhead.receive_ns;
    }
    // Ranks that take turns have all entered when the processor has gone around.
    const int sharers = machine_.sharers(program.rank);
    if (sharers > 1) latency_ns += sharers * machine_.constants().switch_ns;
    if (direct_) graph_.exchange_ns_ = std::max(graph_.exchange_ns_, latency_ns + overhead_ns);
    for (std::size_t s = 0; s < program.steps.size(); ++s) {
      Step& step = graph_.steps_[step_id(program.rank, s)];
      step.rank = program.rank;
      step.processor = machine_.processor(program.rank);
      add_messages(program, s, to, my_stream);
      charge(program, program.steps[s], to, from, step);
    }
    return {};
  }

  void add_messages(const LoweredProgram& program, std::size_t s,
                    const std::vector<const Route*>& to,
                    const std::vector<std::size_t>& my_stream) {
    Step& step = graph_.steps_[step_id(program.rank, s)];
    step.sent_begin = static_cast<std::uint32_t>(graph_.messages_.size());
    for (const LoweredOperand& out : program.steps[s].destinations) {
      if (out.kind != Operand::Kind::message) continue;
      const std::size_t stream = index(out.stream);
      const Rank peer = program.peers[stream];
      const Route& route = *to[stream];
      graph_.messages_.push_back(
          {step_id(program.rank, s), receivers_[index(peer)][my_stream[stream]][index(out.ordinal)],
           &route, static_cast<float>(out.count), form_of(out, route), is_ready(out, route)});
      graph_.any_direct_ |= graph_.messages_.back().form != DirectForm::none;
    }
    step.sent_end = static_cast<std::uint32_t>(graph_.messages_.size());
    for (const LoweredDependency& dependency : program.steps[s].depends)
      if (!is_void(program, s, dependency, to)) {
        ++step.dependencies;
        edges_.emplace_back(step_id(program.rank, index(dependency.step)),
                            step_id(program.rank, s));
      }
  }

  // A fused dependency need not be waited for when both messages travel direct.
  bool is_void(const LoweredProgram& program, std::size_t s, const LoweredDependency& dependency,
               const std::vector<const Route*>& to) const {
    if (!dependency.fused) return false;
    const LoweredOperand& in = program.steps[s].sources[0];
    const LoweredOperand& out = program.steps[index(dependency.step)].destinations[0];
    return form_of(in, *to[index(in.stream)]) != DirectForm::none &&
           form_of(out, *to[index(out.stream)]) != DirectForm::none;
  }

  // What is broadcast lies in place: that is how MPI and the frameworks call it.
  static bool is_roots_own(const LoweredProgram& program, const LoweredStep& step,
                           const LoweredOperand& destination) {
    const LoweredOperand& source = step.sources[0];
    return program.shape.collective == Collective::broadcast && program.shape.ranks > 1 &&
           destination.kind == Operand::Kind::chunks && source.kind == Operand::Kind::chunks &&
           source.buffer == Buffer::input && destination.buffer == Buffer::output &&
           source.chunk == destination.chunk;
  }

  // What the processor reads and writes, and its work on steps and messages.
  void charge(const LoweredProgram& program, const LoweredStep& lowered,
              const std::vector<const Route*>& to, const std::vector<const Route*>& from,
              Step& step) const {
    SharedCoreBytes chunks{0, 0, 0, 0, 0};  // read and written
    double overhead_ns = machine_.constants().step_ns;
    double payload_ns = 0;
    bool landed = false;
    bool writes = false;
    bool any_queued = false;
    // What several peers get through queues (Transport::reserve_for_all). Told apart where ranks
    // share cores: elsewhere the figures were fitted without it.
    const bool written_once = machine_.takes_turns();
    for (const LoweredOperand& source : lowered.sources) {
      if (source.kind != Operand::Kind::message) {
        chunks.near += source.count;
        continue;
      }
      const Route& route = *from[index(source.stream)];
      const DirectForm form = form_of(source, route);
      overhead_ns += message_ns(source, route, route.overhead.receive_ns);
      payload_ns += form == DirectForm::none ? route.overhead.payload_ns : 0;
      landed |= form == DirectForm::push;
      (route.in_one_seat          ? chunks.near
       : route.by_sockets         ? chunks.socket
       : form == DirectForm::none ? chunks.queued
                                  : chunks.read) += source.count;
    }
    for (std::size_t d = 0; d < lowered.destinations.size(); ++d) {
      const LoweredOperand& destination = lowered.destinations[d];
      const Route* route = nullptr;
      DirectForm form = DirectForm::none;
      if (destination.kind == Operand::Kind::message) {
        route = to[index(destination.stream)];
        form = form_of(destination, *route);
        overhead_ns += message_ns(destination, *route, route->overhead.send_ns);
        payload_ns += form == DirectForm::none ? route->overhead.payload_ns : 0;
      }
      const bool in_place = (landed && static_cast<int>(d) == lowered.landing) ||
                            is_roots_own(program, lowered, destination);
      if (form == DirectForm::pull || in_place) continue;
      writes = true;
      const bool queued = route != nullptr && form == DirectForm::none && !route->by_sockets;
      if (queued && written_once && std::exchange(any_queued, true)) continue;
      (route == nullptr || route->in_one_seat ? chunks.near
       : route->by_sockets                    ? chunks.socket
       : form == DirectForm::none             ? chunks.queued
                                              : chunks.stored) += destination.count;
    }
    // What is only offered, or was stored by the peer, is not read either.
    if (writes) step.chunks_touched = touched(program.rank, chunks);
    step.overhead_ns = static_cast<float>(overhead_ns);
    step.payload_ns = static_cast<float>(payload_ns);
  }

  std::array<float, 2> touched(Rank rank, const SharedCoreBytes& chunks) const {
    std::array<float, 2> shares;
    for (const DataIn where : {DataIn::caches, DataIn::memory}) {
      const SharedCoreBytes cost = machine_.bytes_cost(rank, where);
      shares[static_cast<std::size_t>(where)] = static_cast<float>(
          chunks.near * cost.near + chunks.queued * cost.queued + chunks.read * cost.read +
          chunks.stored * cost.stored + chunks.socket * cost.socket);
    }
    return shares;
  }

  // Turns (key, value) pairs into half-open ranges per step.
  template <typename Begin, typename End>
  void group(std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs, Begin begin, End end,
             std::vector<std::uint32_t>& values) {
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    std::size_t next = 0;
    for (std::uint32_t s = 0; s < graph_.steps_.size(); ++s) {
      graph_.steps_[s].*begin = static_cast<std::uint32_t>(values.size());
      for (; next < pairs.size() && pairs[next].first == s; ++next)
        values.push_back(pairs[next].second);
      graph_.steps_[s].*end = static_cast<std::uint32_t>(values.size());
    }
  }

  void index_received() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::uint32_t m = 0; m < graph_.messages_.size(); ++m)
      pairs.emplace_back(graph_.messages_[m].to, m);
    group(pairs, &Step::received_begin, &Step::received_end, graph_.received_);
  }

  void index_dependents() {
    group(edges_, &Step::dependents_begin, &Step::dependents_end, graph_.dependents_);
  }

  const std::vector<LoweredProgram>& programs_;
  Machine& machine_;
  bool direct_;
  CostGraph graph_;
  std::vector<std::uint32_t> first_step_;
  std::vector<std::vector<std::vector<std::uint32_t>>> receivers_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
};

Result<CostGraph> CostGraph::make(const std::vector<LoweredProgram>& programs, Machine& machine,
                                  bool direct) {
  return CostGraphBuilder(programs, machine, direct).build();
}

double call_ns(const CostConstants& constants, const SliceCost& slice, double exchange_ns,
               std::size_t slices_per_channel, int channels) {
  const double slices = static_cast<double>(slices_per_channel) * channels;
  const double flowing = slice.time_ns + (slices - 1) * slice.busy_ns;
  const double in_flight = constants.window * channels;
  return exchange_ns + std::max(flowing, slice.time_ns * slices / in_flight);
}

std::size_t CostGraph::memory_bytes() const {
  return sizeof(*this) + bytes_of(steps_) + bytes_of(messages_) + bytes_of(received_) +
         bytes_of(dependents_);
}

}  // namespace tutti::collectives

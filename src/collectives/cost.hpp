// cost.hpp: how long a schedule takes on a topology, as a model tells: one slice of the data is
// simulated step by step, and the busiest resource says how quickly further slices can follow.
//
// What a slice meets. Every direction of every link is a resource that serves one message after the
// other (contention is queueing), and so is every seat's processor, which reads and writes bytes
// and spends a little on each step and message. A message that is not direct is copied into a queue
// by its sender and out of it by its receiver. Direct ones are read, or stored, in place, and cost
// a signal to either end, or to one where they are ready at arrival; the ranks have then exchanged
// addresses first. Ranks that share a processor take turns on it (turns.hpp), and what a slice
// takes there is what it adds to a loop of calls.
//
// Knows nothing of choices: it prices what it is given. Times are ns, sizes bytes, rates bytes/ns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/lowered.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {

// What a message costs, beside moving its bytes and the latency of its path.
struct MessageOverhead {
  double send_ns = 0;     // of the sender's processor: put into a queue
  double receive_ns = 0;  // of the receiver's: found in it and released
  double signal_ns = 0;   // of either end's, when it travels direct
  double wake_ns = 0;     // until the receiver sees it, while processors can do other things
  double payload_ns = 0;  // of either end's, for staged data of 2 KiB and more; less for less

  friend bool operator==(const MessageOverhead&, const MessageOverhead&) = default;
};

// What a byte costs a core that ranks share, in shares of the usual time: one that stays within the
// core, one that comes from another core's queue or goes into it, one read from a buffer of another
// core, one stored there, and one that goes into a socket or comes out of it. Where each rank has a
// core of its own, all take the usual time, and the links of sockets stand for what their ends do.
struct SharedCoreBytes {
  double near = 1;
  double queued = 1;
  double read = 1;
  double stored = 1;
  double socket = 1;

  friend bool operator==(const SharedCoreBytes&, const SharedCoreBytes&) = default;
};

// The numbers of the model that no topology holds. All are for one step, message or rank.
struct CostConstants {
  // Source: cache-line transfers between two cores of a Xeon: 68 ns one way, 219 ns for a symmetric
  // exchange of flags through the same path that topology defaults give 100 ns. Signals and
  // payloads fitted to all_reduce between two cores, 1 to 16 KiB, by doubling, ring and direct.
  MessageOverhead shared_memory{60, 60, 100, 0, 120};
  // Source: 3.2 us one way between two processes over loopback TCP; half of it at each end. A long
  // message has its header read apart and waits for its last packet: between two network namespaces
  // all_gather of 1 MiB takes 107 us in 3 slices and 122 in 4.
  MessageOverhead sockets{1500, 1500, 1500, 0, 1500};
  // More of it at either end, where ranks take turns on a core: others have it when the message
  // comes, so that sockets are also looked at in vain. Source: collectives of 1 KiB between eight
  // ranks on two cores, 7 to 15 us for every message, both ends together.
  double shared_socket_ns = 1500;
  // Assumed: a block of threads waits for each peer, so messages hardly delay each other.
  MessageOverhead gpu{50, 50, 50, 500};
  // Assumed: a GPU's message through a NIC that reads and writes GPU memory.
  MessageOverhead gpu_network{150, 150, 150, 1500};
  // Finding out that a step can be taken, and taking it.
  double step_ns = 20;
  // Source: two switches between processes that yield to each other take 2200 to 3800 ns on an
  // EPYC, and whoever gets the core looks at its queues.
  double switch_ns = 1400;
  // By where the buffers of a call lie. Chosen: between caches of an EPYC a line takes 3 to 20
  // times as long as within one, by where the hypervisor puts the cores, and its owner pays once
  // more when it next writes or reads it; from memory all lines take long. With it, what is chosen
  // for all_reduce between 4 and 8 ranks on two cores is what is fastest there, or near to it, from
  // 1 KiB to 16 MiB, where owners write and read their buffers between calls; on a Xeon, too, but
  // for 1 and 4 MiB, where direct takes 0.6 to 0.9 of the time.
  // Sockets: collectives of 1 MiB between eight ranks on two cores take 190 to 230 us for every MiB
  // that travels, whatever the algorithm, if its messages are long.
  SharedCoreBytes in_caches{0.4, 2.5, 4.5, 3, 4.5};
  SharedCoreBytes in_memory{1, 2.5, 2.3, 2.3, 4.5};
  // Of the buffers of all ranks of a core: more of them lies in memory. Assumed: what a core has of
  // a server's last level cache.
  double cache_bytes = 32 << 20;
  // A core reads and writes together twice what it copies.
  double processor_per_copy = 2;
  // Assumed: nine tenths of an H100's HBM3 (3350 GB/s), bytes read plus bytes written.
  double gpu_bytes_per_ns = 3000;
  // Of a seat that has no memory link.
  double core_copy_bytes_per_ns = 12;
  // Slices of a channel that can be under way at once (the executor's window).
  double window = 8;
  // Of calls of one round with messages that are sent at once, where ranks take turns: who gets the
  // core ends one call and sends all of the next, so that every switch serves two. Not of sockets,
  // where messages cost more than switches. Source: one_shot all_reduce of 8 B among 3 to 8 ranks
  // on two cores, 0.39 to 0.57. Also of leaders_in_turn among 4, 8 B to 4 KiB, 0.52 to 0.7.
  double one_round = 0.55;
  // Of longer ones in which ranks that share a core lead in turn: what the others wait for lies in
  // the caches still. Source: leaders_direct_in_turn among 4 ranks on two cores of an EPYC, of what
  // is measured by what is predicted for it and for leaders_direct, 16 to 128 KiB, 0.68 to 0.95.
  double in_turn = 0.75;
  // Of a call whose messages are not sent at once, through queues between ranks with cores of their
  // own. Source: two cores of a Sapphire Rapids, plain memory, one message each way at once and
  // what is predicted to be as quick or quicker, us: broadcast of 4 KiB 1.6 and 2.3, 8 KiB 2.9 and
  // 3.5, 16 KiB 4.2 and 4.6; all_reduce of 12 KiB 3.9 and 5.0, 16 KiB 4.6 and 5.7, 24 KiB 5.9 and
  // 7.0. Not more, as broadcast of 24 KiB takes 6.1 and 5.6.
  double set_up_ns = 900;
  // Of a call without data whose groups combine (Plan::combining_group), of what leaders_one_shot
  // is predicted to take: no messages are found or sent, and who comes last leads. What its data
  // add is as of those who lead in turn. Chosen so that predictions for combining and for what was
  // chosen without it are to each other as measured times: 8 B among 4 and 8 ranks on two cores of
  // an EPYC 0.9 of leaders_in_turn and 0.7 to 0.83 of one_shot, 64 KiB among 4 0.85 to 1.22 of
  // leaders_direct_in_turn.
  double combining = 0.4;

  friend bool operator==(const CostConstants&, const CostConstants&) = default;
};

// A message of at most so many bytes of a small call is not built in the queue, where the kernels
// copy well, but handed over with the record: calls of one round (CostGraph::one_round()) are made
// without being set up then.
inline constexpr std::size_t kSentAtOnceBytes = 4096;
// Of a pair with a core each, which has one message each way. Source: near cores of an EPYC, plain
// buffers, by 4 KiB at most and by this, us: all_gather of 16 KiB 0.68 and 0.59, 32 KiB 0.95 and
// 0.83, 64 KiB 1.66 and 1.48; all_reduce, of two messages each way, 16 KiB 1.12 and 1.20.
inline constexpr std::size_t kPairSentAtOnceBytes = std::size_t{32} << 10;
// Where ranks take turns, that is worth it as long as a rank hears no more than this of all others:
// measured, one_shot all_reduce up to 4 KiB among 4 ranks and 1 KiB among 8, on two cores.
inline constexpr std::size_t kHeardAtOnceBytes = 12 * 1024;

enum class DataIn { caches, memory };

// What messages between two ranks meet.
struct Route {
  std::vector<std::uint32_t> links;  // resources, in order
  double latency_ns = 0;             // of an empty message, without overheads
  bool shares_memory = false;        // in one node, and not through its network
  bool in_one_seat = false;          // nothing leaves the processor that both ends share
  bool by_sockets = false;           // processors move the bytes of both ends
  // The same machine's, and each end has a core: one reads while the other still writes.
  bool streams = false;
  MessageOverhead overhead;
  // For which every link on the way waits with each message: the processors that move the bytes of
  // sockets are those that spend the overhead.
  double link_ns = 0;
  double link_payload_ns = 0;  // more of it, for messages that are not small
};

// Resources and routes of ranks placed on a topology.
class Machine {
 public:
  // `cores`: by rank, equal for those that take turns on one processor; empty: those on one seat.
  // `one_machine`: what goes through sockets never leaves it.
  // Requires  placement: the seat of every rank, in `topology`; both outlive this.
  Machine(const Topology& topology, const std::vector<VertexId>& placement,
          const CostConstants& constants = {}, const std::vector<int>& cores = {},
          bool one_machine = false);

  int ranks() const { return static_cast<int>(placement_.size()); }
  const CostConstants& constants() const { return constants_; }
  const Topology& topology() const { return topology_; }
  const std::vector<VertexId>& placement() const { return placement_; }

  // Errors  invalid_argument when nothing connects the two.
  Result<const Route*> route(Rank from, Rank to);

  std::size_t resource_count() const { return rate_.size(); }
  double rate(std::uint32_t resource) const { return rate_[resource]; }
  std::uint32_t processor(Rank rank) const { return processor_[static_cast<std::size_t>(rank)]; }
  // How many ranks take turns on the rank's processor, and which of them it is.
  int sharers(Rank rank) const { return sharers_[static_cast<std::size_t>(rank)]; }
  int turn(Rank rank) const { return turn_[static_cast<std::size_t>(rank)]; }
  bool takes_turns() const { return most_sharers() > 1; }
  int most_sharers() const;  // of the ranks' cores, the most ranks that have one

  // Where the buffers lie of a call that has so many bytes in, and as many out, of each rank. It
  // only matters where ranks share processors: elsewhere it is always the same answer.
  DataIn data_in(double bytes) const;
  // What bytes cost the rank's processor.
  SharedCoreBytes bytes_cost(Rank rank, DataIn where) const;
  bool is_processor(std::uint32_t resource) const {
    return resource >= 2 * topology_.links().size();
  }
  // The first rank that a processor serves. Requires  is_processor(resource).
  Rank rank_of(std::uint32_t resource) const;

  // Whether messages between core seats and the rest draw on this link: a core's own memory link is
  // its processor, and not counted twice.
  bool is_charged(const Link& link) const;

  // "n0/nic3 -> network (50 GB/s)", "memory of rank 3 (n0/core3, 24 GB/s)".
  std::string name(std::uint32_t resource) const;

 private:
  Route make_route(Rank from, Rank to, const Path& path) const;

  const Topology& topology_;
  const std::vector<VertexId>& placement_;
  CostConstants constants_;
  bool one_machine_;
  std::vector<double> rate_;              // links by capacity_index, then processors
  std::vector<std::uint32_t> processor_;  // of each rank; several may share it
  std::vector<int> sharers_;              // of each rank: ranks on its processor
  std::vector<int> turn_;                 // of each rank: among them
  std::map<std::pair<VertexId, VertexId>, std::unique_ptr<Route>> routes_;
};

// The cost of one slice.
struct SliceCost {
  double time_ns = 0;  // from the first step to the last
  double busy_ns = 0;  // of the busiest resource
  std::uint32_t busiest = 0;
  int alike = 1;  // resources as busy as that one
};

// A schedule prepared for pricing: who waits for whom, and what each step and message charges.
class CostGraph {
 public:
  // `direct`: messages between ranks that share memory travel direct where they have a direct form.
  // Errors  invalid_argument when ranks that talk are not connected.
  static Result<CostGraph> make(const std::vector<LoweredProgram>& programs, Machine& machine,
                                bool direct);

  // One slice whose chunks have so many bytes.
  // `odd`: of every second call, where they differ.
  SliceCost price(const Machine& machine, double chunk_bytes, DataIn where = DataIn::memory,
                  const CostGraph* odd = nullptr) const;

  // Until all addresses are exchanged; 0 when nothing is direct.
  double exchange_ns() const { return exchange_ns_; }
  // Whether any message travels direct.
  bool any_direct() const { return any_direct_; }
  // Whether every rank sends one message to each of its peers, out of its own memory and before it
  // has received anything, and receives one: all wait for all, once. Not of messages by sockets.
  bool one_round() const { return one_round_; }
  // The same, but that a rank may send a peer nothing, or hear nothing of it.
  bool sent_at_once() const { return sent_at_once_; }

  std::size_t memory_bytes() const;  // an estimate

 private:
  friend class SliceSimulation;
  friend class CostGraphBuilder;

  struct Message {
    std::uint32_t from = 0;  // steps
    std::uint32_t to = 0;
    const Route* route = nullptr;
    float chunks = 0;
    DirectForm form = DirectForm::none;  // none: staged
    bool ready = false;                  // direct, and nobody waits for an offer or a grant
  };
  struct Step {
    Rank rank = 0;
    std::uint32_t processor = 0;
    std::uint32_t dependencies = 0;
    // Read and written by the processor, in shares of the usual time, by DataIn.
    std::array<float, 2> chunks_touched{};
    float overhead_ns = 0;
    float payload_ns = 0;  // more overhead, of messages that are not small
    // Half-open ranges into dependents_, received_, and messages_ (in order of sender).
    std::uint32_t dependents_begin = 0, dependents_end = 0;
    std::uint32_t received_begin = 0, received_end = 0;
    std::uint32_t sent_begin = 0, sent_end = 0;
  };

  std::vector<Step> steps_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> received_;    // messages, by receiving step
  std::vector<std::uint32_t> dependents_;  // steps, by the step they wait for
  double exchange_ns_ = 0;
  bool any_direct_ = false;
  bool one_round_ = false;
  bool sent_at_once_ = false;
};

// A call of several slices that follow each other on `channels` channels: the first takes its time,
// each further one adds what the busiest resource needs, and no more than a window is under way.
double call_ns(const CostConstants& constants, const SliceCost& slice, double exchange_ns,
               std::size_t slices_per_channel, int channels);

}  // namespace tutti::collectives

// communicator.hpp: a group of ranks that act together. This is the header that users of Tutti
// live in: make a communicator, call collectives on spans.
//
// Knows nothing of schedules or transports; those are chosen underneath.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/numeric.hpp"
#include "tutti/reduction.hpp"
#include "tutti/types.hpp"

#pragma GCC visibility push(default)
namespace tutti {

class Transport;

namespace runtime {
class CommunicatorAccess;
class CommunicatorState;
class WorkState;
}  // namespace runtime

// How a communicator is made. Every field has a default that is right for most programs.
struct CommunicatorOptions {
  std::string
      transport;  // "auto", "memory", "shm", "tcp", "ucx", "net_plugin"; empty: TUTTI_TRANSPORT's
  std::string algorithm;  // force an algorithm by name; empty: the planner chooses
  std::string lowering;   // "auto" (or empty), "direct", "staged"
  // "any" (or empty): the planner may add in whatever order is quickest. "rank_tree": reductions
  // add along one tree over the ranks' numbers, whose left part is the largest power of two below,
  // and round 16- and 8-bit floats once at the end. Then the bits do not depend on algorithm,
  // transport, chunks, channels or lowering, and of 32- and 64-bit types not on reducing within
  // groups of 2^k neighbours first. Empty: TUTTI_REDUCE_ORDER decides.
  std::string reduce_order;
  int channels = 0;               // 0: the planner chooses
  std::size_t slice_bytes = 0;    // 0: the planner chooses
  std::optional<bool> checksums;  // on every frame; empty: TUTTI_CHECKSUMS (off)
  // Calls that differ between ranks are found before anything is written, at the cost of a small
  // exchange for each call; empty: TUTTI_CHECK (late: on this or the next call).
  std::optional<bool> strict;
  std::chrono::milliseconds timeout{0};        // per collective; 0: TUTTI_TIMEOUT_MS (10 minutes)
  std::chrono::milliseconds setup_timeout{0};  // for joining; 0: TUTTI_SETUP_TIMEOUT_MS (30 s)
  // For tests and measurements: what is to stand between a communicator and its transport
  // (tutti/transport.hpp), to count or slow down what travels. Called once for each communicator
  // that is made, also by split() and shrink(), on the thread that makes it. All ranks give one, or
  // none does. What it returns has the rank and size of what it was given.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap_transport;
};

// Where the ranks of a world meet when no launcher says so.
struct Rendezvous {
  Rank rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // where rank 0 listens
  int port = 0;                       // 1 .. 65535
  std::string secret;                 // shared by all ranks; empty: loopback only
};

// One started collective. Movable; wait() or destroy it before the communicator goes away.
//
// Threading  the thread that uses the communicator. wait() also moves every other started
//            collective of this process forward.
class Work {
 public:
  Work();
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();  // waits for completion, because the buffers are still in use until then

  explicit Work(std::shared_ptr<runtime::WorkState> state);

  // Blocks until complete. Errors: timeout, peer_lost, mismatch, aborted; the same on every call.
  Status wait();

  // Moves the collective forward without blocking; true when it is complete (also with an error).
  bool test();

 private:
  std::shared_ptr<runtime::WorkState> state_;
};

// What the planner chose for one call and why; for printing.
struct PlanReport {
  std::string algorithm;
  std::string lowering;
  int channels = 1;
  std::size_t slice_bytes = 0;
  double predicted_us = 0;
  double lower_bound_us = 0;  // no schedule is quicker on this machine as the planner sees it
  std::string explanation;    // many lines: candidates, predictions, limiting link, lower bound
  std::string chosen_by;      // "measured" (the tuning table), "model" or "tuner" (a plugin)
  std::string measured;       // the time in the tuning table, for people; "-": none
};

// Memory of a communicator and its transport, for `tutti doctor` and the curious. Made on first
// use. By default all but scratch is at most 1 MiB, and 1 MiB for each connected peer. Units:
// bytes.
struct MemoryUse {
  std::size_t transport_bytes = 0;
  std::size_t scratch_bytes = 0;   // grows with the largest count that an algorithm needed it for
  std::size_t plan_bytes = 0;      // schedules and programs: an estimate from the containers' sizes
  std::size_t recorder_bytes = 0;  // of the flight recorder

  std::size_t total_bytes() const {
    return transport_bytes + scratch_bytes + plan_bytes + recorder_bytes;
  }
};

// The blocks of a buffer, one for each rank. Units: elements.
struct BlockLayout {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> displacements = {};  // from the buffer's beginning; empty: packed
};

// What the living ranks of a communicator have agreed on.
struct Consensus {
  std::uint64_t flags = 0;  // the bits that all of them gave
  std::vector<Rank> lost;   // who is dead or gone, ascending
};

// A group of ranks and the means to talk. Movable, not copyable; closes on destruction.
//
// Threading  one thread at a time. abort() from any thread.
// Order      all ranks make the same collective calls in the same order.
// In place   input and output may be the same buffer where NCCL allows it: all_reduce, broadcast
//            and reduce with equal pointers; all_gather, and gather on its root, with input at
//            output + rank * count; reduce_scatter, and scatter on its root, with output at input +
//            rank * count; all_gather_v and reduce_scatter_v with the rank's own block in its
//            place. all_to_all and all_to_all_v are never in place.
// Memory     of the host; that of GPUs goes by NCCL's interface only (docs/nccl.md). All counts are
//            in elements. "per rank" counts are equal on all ranks.
class Communicator {
 public:
  Communicator();  // not connected; only assignment and destruction are allowed
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  // Joins the world that a launcher describes: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
  // MASTER_PORT (torchrun, `tutti run`), or Open MPI's, MPICH's or Slurm's own variables.
  // Without any of them: a world of one rank.
  static Result<Communicator> from_environment(const CommunicatorOptions& options = {});

  // Joins at an explicit address.
  static Result<Communicator> from_rendezvous(const Rendezvous& rendezvous,
                                              const CommunicatorOptions& options = {});

  // Ranks as threads of this process: one communicator per rank, for one thread each.
  // Lifetime  of the buffers of a call that fails: until it has failed on the other ranks too,
  // which
  //           may use them for a moment longer.
  static Result<std::vector<Communicator>> for_threads(int size,
                                                       const CommunicatorOptions& options = {});

  Rank rank() const;
  int size() const;
  std::string transport_name() const;
  // What the frames go through: what wrap_transport returned, where there is one. Null when not
  // connected. Lifetime: the communicator's.
  const Transport* transport() const;

  // A new communicator of the ranks that pass the same color, ordered by (key, rank).
  // A negative color takes part in the call but gets a communicator that is not connected.
  // Every rank of this communicator must call it.
  Result<Communicator> split(int color, int key = 0);

  // ---- Collectives on raw memory. The typed forms below are what most programs use. ----

  Status all_reduce(const void* input, void* output, std::size_t count, DataType type,
                    const Reduction& op);
  // input: count elements; output: size() * count elements.
  Status all_gather(const void* input, void* output, std::size_t count, DataType type);
  // input: size() * count elements; output: count elements.
  Status reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                        const Reduction& op);
  // input is read on the root only; output is written on every rank (also the root).
  Status broadcast(const void* input, void* output, std::size_t count, DataType type, Rank root);
  // output is written on the root only.
  Status reduce(const void* input, void* output, std::size_t count, DataType type,
                const Reduction& op, Rank root);
  // input: count elements; output, on the root only: size() * count elements in the order of ranks.
  Status gather(const void* input, void* output, std::size_t count, DataType type, Rank root);
  // input, on the root only: size() * count elements, block p for rank p; output: count elements.
  Status scatter(const void* input, void* output, std::size_t count, DataType type, Rank root);
  // input and output: size() * count elements; block p goes to, and comes from, rank p.
  Status all_to_all(const void* input, void* output, std::size_t count, DataType type);

  // Blocks of different sizes, also of none. Of all_gather_v and reduce_scatter_v all ranks give
  // the same counts; displacements are each rank's own business.
  // input: blocks.counts[rank()] elements; block p of the output comes from rank p.
  Status all_gather_v(const void* input, void* output, const BlockLayout& blocks, DataType type);
  // Block p of the input is reduced for rank p; output: blocks.counts[rank()] elements.
  Status reduce_scatter_v(const void* input, void* output, const BlockLayout& blocks, DataType type,
                          const Reduction& op);
  // Block p of the input goes to rank p, block p of the output comes from it: what rank a sends to
  // b must be as long as what b receives from a.
  // Errors  mismatch, on this or the next call, where it is not.
  Status all_to_all_v(const void* input, const BlockLayout& sent, void* output,
                      const BlockLayout& received, DataType type);

  Status send(const void* input, std::size_t count, DataType type, Rank to);
  Status recv(void* output, std::size_t count, DataType type, Rank from);
  // Both at once, so that a cycle of ranks cannot deadlock.
  Status send_recv(const void* input, Rank to, void* output, Rank from, std::size_t count,
                   DataType type);
  Status barrier();

  // Calls between group_begin() and group_end() are kept, and made by group_end(): first all sends
  // and receives as one, with any peers in any order, then the collectives in their order. Of two
  // ranks, both ends of a message are in groups; messages from one to the other keep their order.
  // Groups nest; the outermost group_end() acts. What cannot be right is refused when it is called.
  Status group_begin();
  Status group_end();  // the first error of all
  Result<std::vector<Work>> group_end_async();

  // The same, started and not waited for. Buffers must stay alive until the Work is complete.
  Result<Work> all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                const Reduction& op);
  Result<Work> all_gather_async(const void* input, void* output, std::size_t count, DataType type);
  Result<Work> reduce_scatter_async(const void* input, void* output, std::size_t count,
                                    DataType type, const Reduction& op);
  Result<Work> broadcast_async(const void* input, void* output, std::size_t count, DataType type,
                               Rank root);
  Result<Work> reduce_async(const void* input, void* output, std::size_t count, DataType type,
                            const Reduction& op, Rank root);
  Result<Work> gather_async(const void* input, void* output, std::size_t count, DataType type,
                            Rank root);
  Result<Work> scatter_async(const void* input, void* output, std::size_t count, DataType type,
                             Rank root);
  Result<Work> all_to_all_async(const void* input, void* output, std::size_t count, DataType type);
  Result<Work> all_gather_v_async(const void* input, void* output, const BlockLayout& blocks,
                                  DataType type);
  Result<Work> reduce_scatter_v_async(const void* input, void* output, const BlockLayout& blocks,
                                      DataType type, const Reduction& op);
  Result<Work> all_to_all_v_async(const void* input, const BlockLayout& sent, void* output,
                                  const BlockLayout& received, DataType type);
  Result<Work> send_recv_async(const void* input, Rank to, void* output, Rank from,
                               std::size_t count, DataType type);
  Result<Work> barrier_async();

  // ---- Typed forms: T is float, double, bfloat16, float16, float8_e4m3, float8_e5m2, or a signed
  // or unsigned integer of 8, 32 or 64 bits. ----

  // In place.
  template <typename T>
  Status all_reduce(std::span<T> data, const Reduction& op) {
    return all_reduce(data.data(), data.data(), data.size(), data_type_of<T>(), op);
  }
  template <typename T>
  Status all_reduce(std::span<const T> input, std::span<T> output, const Reduction& op) {
    if (input.size() != output.size()) return size_error("all_reduce", input.size(), output.size());
    return all_reduce(input.data(), output.data(), input.size(), data_type_of<T>(), op);
  }
  template <typename T>
  Status broadcast(std::span<T> data, Rank root) {
    return broadcast(data.data(), data.data(), data.size(), data_type_of<T>(), root);
  }
  // Requires  output.size() == size() * input.size().
  template <typename T>
  Status all_gather(std::span<const T> input, std::span<T> output) {
    if (output.size() != input.size() * static_cast<std::size_t>(size()))
      return size_error("all_gather", input.size(), output.size());
    return all_gather(input.data(), output.data(), input.size(), data_type_of<T>());
  }
  // Requires  input.size() == size() * output.size().
  template <typename T>
  Status reduce_scatter(std::span<const T> input, std::span<T> output, const Reduction& op) {
    if (input.size() != output.size() * static_cast<std::size_t>(size()))
      return size_error("reduce_scatter", input.size(), output.size());
    return reduce_scatter(input.data(), output.data(), output.size(), data_type_of<T>(), op);
  }

  // What would be, or was, chosen for a call of this shape. Errors: as the call itself.
  Result<PlanReport> explain(Collective collective, std::size_t count, DataType type,
                             Rank root = 0);

  MemoryUse memory_use() const;

  // Ends every running and later call of this communicator on this rank with `aborted`, promptly.
  // Threading  any thread.
  void abort();

  // ---- After a failure. The first error of a communicator is final: it reaches all ranks that
  // call, names the rank with which it began, and every later collective gives it again. What
  // follows still works then, as long as the ranks that live all call it, in the same order. ----

  // Ends every running and later call on all ranks with `revoked` (or with the error that is there
  // already), so that ranks leave a call that can no longer succeed. Any rank may call it.
  Status revoke();

  // What the living ranks agree on: the bits of `flags` that all of them give, and who is lost. All
  // who return have the same, whoever dies meanwhile. Also without a failure.
  // Blocking  until all ranks that live have called it, or the deadline of a collective.
  // Errors    timeout names who is missing; peer_lost when the others hold this rank for lost;
  //           mismatch when another rank called shrink() instead.
  Result<Consensus> agree(std::uint64_t flags);

  // A new communicator of those that live, in the order of their ranks. Revokes this one first.
  // Every rank that lives must call it. Those who die meanwhile are left out.
  // Errors    as those of agree(); after a mismatch all may call again.
  Result<Communicator> shrink();

  // Says goodbye to the peers. Blocking: until they have what we sent, or the set-up deadline.
  Status close();

 private:
  friend class Stream;  // keeps the state of those that its operations use
  friend class runtime::CommunicatorAccess;
  explicit Communicator(std::shared_ptr<runtime::CommunicatorState> state);
  static Status size_error(const char* call, std::size_t input, std::size_t output);
  Status run_varied(Collective collective, const void* input, const BlockLayout& sent, void* output,
                    const BlockLayout& received, DataType type, ReduceOp op);

  std::shared_ptr<runtime::CommunicatorState> state_;
};

// Memory that every rank on this host can load and store directly, which spares the copies
// through a transport's own buffers. Zero-filled, page-aligned.
//
// Errors    null when the system has no memory left.
// Lifetime  until deallocate(); not while a collective uses it.
// Threading any thread.
void* allocate(std::size_t bytes);
void deallocate(void* memory);

// Makes memory that the program got elsewhere (malloc, new, mmap) what allocate() returns, where it
// is: every rank on this host can load and store its pages from now on, until it is freed, which
// needs no word to Tutti. With TUTTI_SHARE_HEAP=1 calls do so by themselves. See
// docs/shared-heap.md for what it costs and what cannot be shared.
//
// Errors    unsupported, with the reason: calls work with that memory as before, staged. The system
//           may not allow it (userfaultfd); not for memory of files, stacks, read-only or locked
//           memory. invalid_argument: no bytes, or no address that a program can have.
// Threading any thread. Others may use the memory meanwhile; those that store into it wait.
// Blocking  for as long as a copy of the memory takes.
Status register_memory(const void* memory, std::size_t bytes);

}  // namespace tutti
#pragma GCC visibility pop

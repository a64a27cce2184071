// executor.hpp: runs one rank's part of a plan over a transport.
//
// A non-blocking state machine: start() sets a call up, advance() does whatever can be done now and
// returns. It never sleeps, spawns, reads a clock or draws a random number, so the very same code
// runs in production and in the simulated world. Who calls advance(), and when to give up, is the
// business of whoever waits.
//
// The call's data is cut into channels and slices (collectives/geometry.hpp). Each channel runs the
// program on its own connections; slices of a channel follow each other through the program,
// several of them in flight. Per slice, steps are taken as lowered.hpp says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/geometry.hpp"
#include "collectives/plan.hpp"
#include "runtime/arrival.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

// One call of one rank.
struct Call {
  Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// Numbers that never change what is computed, only how fast.
struct ExecutorOptions {
  // Calls that move at least so many bytes bypass the caches when they store.
  std::size_t streaming_bytes = std::size_t{24} << 20;
};

// One per communicator and rank; runs one call at a time.
//
// Threading  one thread at a time.
// Blocking   never.
// Errors     sticky: after a failure every later call fails with the same Status.
class Executor {
 public:
  Executor(Transport& transport, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Begins a call. Requires  done(). The plan and the buffers must live until done().
  // Errors  unsupported: a slice cannot hold one element of every chunk of the largest message.
  Status start(const Call& call, const collectives::Plan& plan);

  // Does what can be done now; true when anything moved. Requires  a started call.
  bool advance();

  bool done() const { return finished_ || !status_.ok(); }
  const Status& status() const { return status_; }

  // Ends the call, and every later one, with `status`.
  void fail(Status status);

  // The first peer that the call waits for and what for ("rank 3: its data"), for error texts.
  std::string waits_for() const;

  std::size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  enum class Phase : std::uint8_t { waiting, granted, offered, complete };

  // One connection. Messages are numbered through, from when it was made, in both directions.
  struct Stream {
    Endpoint* endpoint = nullptr;
    std::uint64_t sent_before = 0;  // messages of earlier calls
    std::uint64_t received_before = 0;
    std::uint64_t sent = 0;     // messages of this call that were issued
    std::uint64_t taken = 0;    // staged and pulled ones of this call that were taken
    std::uint64_t granted = 0;  // pushed ones of this call that were granted
  };

  // What a call knows of a peer (by stream number of the program).
  struct Peer {
    bool arrival_sent = false;
    bool arrival_expected = false;
    bool arrival_seen = false;
    bool settled = false;  // which messages from it are pushed is known, and filled in below
    std::uint8_t mine_addressable = 0;    // bit per Buffer: the peer can touch my memory
    std::uint8_t theirs_addressable = 0;  // bit per Buffer: I can touch its memory
    std::byte* memory[3] = {nullptr, nullptr, nullptr};
    // By ordinal of a message from it: its number among the pushed ones, or among the others.
    std::vector<std::uint32_t> place;
    std::uint64_t pushed_per_slice = 0;
    std::uint64_t taken_per_slice = 0;

    // As new, but keeps the memory of `place`.
    void reset() {
      place.clear();
      arrival_sent = arrival_expected = arrival_seen = settled = false;
      mine_addressable = theirs_addressable = 0;
      memory[0] = memory[1] = memory[2] = nullptr;
      pushed_per_slice = taken_per_slice = 0;
    }
  };

  struct Channel {
    std::size_t first_slice = 0;      // everything before is complete
    std::vector<Phase> phases;        // window slots x steps
    std::vector<std::int32_t> first;  // per window slot: steps before are complete
    std::vector<std::int32_t> left;   // per window slot: incomplete steps
  };

  // A step of one slice on one channel, while it is being tried.
  struct Attempt {
    int channel;
    std::size_t slice;
    const collectives::LoweredStep* step;
    Phase* phases;  // of all steps of this slice
    Phase* phase;   // of this step
  };

  Status prepare_scratch();
  Status connect();
  bool send_arrival(int peer);
  bool take_arrivals();
  bool take_arrival(int peer);
  bool accept_arrival(int peer, const Frame& frame);
  void export_memory(int peer, Arrival& arrival);
  void settle(int peer);

  void finish();
  bool advance_channel(int channel);
  bool advance_slice(int channel, std::size_t slice);
  bool try_step(Attempt& attempt);
  bool dependencies_complete(const Attempt& attempt) const;
  bool grant_landings(Attempt& attempt);
  bool sources_ready(const Attempt& attempt);
  bool destinations_ready(const Attempt& attempt);
  void run(const Attempt& attempt);
  void run_piece(const Attempt& attempt, int piece, std::size_t message_bytes_before);
  void finish_messages(Attempt& attempt);
  bool offers_taken(const Attempt& attempt);

  Stream& stream(int channel, int peer);
  const Stream& stream(int channel, int peer) const;
  bool direct(const collectives::LoweredOperand& operand) const;
  bool is_next_to_send(const Attempt& attempt, const collectives::LoweredOperand& o) const;
  bool is_next_to_take(const Attempt& attempt, const collectives::LoweredOperand& o) const;
  bool is_next_to_grant(const Attempt& attempt, const collectives::LoweredOperand& o) const;
  std::uint64_t number_sent(const Attempt& attempt, const collectives::LoweredOperand& o) const;
  std::uint64_t number_received(const Attempt& attempt, const collectives::LoweredOperand& o) const;
  std::size_t message_bytes(const Attempt& attempt) const;
  const std::byte* own_memory(Buffer buffer) const;

  Transport& transport_;
  ExecutorOptions options_;
  Status status_;
  bool finished_ = true;

  Call call_;
  const collectives::Plan* plan_ = nullptr;
  const collectives::LoweredProgram* program_ = nullptr;
  collectives::Geometry geometry_;
  std::size_t element_bytes_ = 1;
  std::size_t window_ = 1;
  bool streaming_ = false;

  std::vector<Stream> streams_;        // rank x channel, for the communicator's life
  std::vector<Stream*> call_streams_;  // channel x peer of the program
  std::vector<Peer> peers_;
  std::vector<Channel> channels_;

  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  bool scratch_is_shareable_ = false;

  // Rooms of the step being tried, by operand; kept to spare allocations.
  std::vector<const std::byte*> frames_;
  std::vector<std::byte*> rooms_;
  std::vector<const std::byte*> source_pointers_;
  std::vector<std::byte*> destination_pointers_;
};

}  // namespace tutti::runtime

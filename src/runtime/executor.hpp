// executor.hpp: runs one rank's part of a plan over a transport.
//
// A non-blocking state machine: start() sets a call up, advance() does whatever can be done now and
// returns. It never sleeps, spawns or draws a random number, so the very same code runs in
// production and in the simulated world. It reads a clock only to find out which way is quick, and
// not in simulated worlds (store_choice.hpp, pull_choice.hpp). Who calls advance(), and when to
// give up, is the business of whoever waits.
//
// The call's data is cut into channels and slices (collectives/geometry.hpp). Each channel runs the
// program on its own connections; slices of a channel follow each other through the program,
// several of them in flight. Per slice, steps are taken as lowered.hpp says. Where blocks differ in
// size (blocks.hpp) a step is left out in slices that its block does not reach. Small calls, which
// are not cut, take a shorter way (short_program.hpp).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/geometry.hpp"
#include "collectives/plan.hpp"
#include "runtime/arrival.hpp"
#include "runtime/blocks.hpp"
#include "runtime/call.hpp"
#include "runtime/call_program.hpp"
#include "runtime/combining.hpp"
#include "runtime/direct_round.hpp"
#include "runtime/executor_options.hpp"
#include "runtime/frame_tag.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/one_round.hpp"
#include "runtime/peer_state.hpp"
#include "runtime/plan_choice.hpp"
#include "runtime/pointers.hpp"
#include "runtime/pull_choice.hpp"
#include "runtime/short_program.hpp"
#include "runtime/special_reduction.hpp"
#include "runtime/store_choice.hpp"
#include "runtime/stream_choice.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

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

  // Begins a call. Requires  done(), and a signed call. The buffers must live until done().
  // Errors  unsupported: a slice cannot hold one element of every chunk of the largest message.
  Status start(const Call& call, const collectives::Plan& plan);

  // The same for a call that is like the latest one but for its buffers, and one round of
  // messages: sends all that it sends, or, of a direct one, the records for which all others wait.
  // False: it is none, or cannot be made now; nothing was done.
  // Requires  the transport shows what peers did without being polled (TransportTraits::immediate).
  bool post_again(const Call& call, const collectives::Plan& usual);
  // After it, any number of times: whether all that it waits for is there, looking for it up to
  // `looks` times, or until a rank is missed that needs this core in order to come. `missed_at`
  // becomes when it was last missed, in ticks; 0 of calls that do much once they have found it.
  bool find_again(int looks, std::uint64_t& missed_at);
  // And then: true when the call is complete, as it is where all was `found`; else it has been
  // started, and goes on as any other.
  bool end_again(bool found);

  // Does what can be done now; true when anything moved. Not `everywhere`: what peers on other
  // cores did can wait until those on this one have come. Requires  a started call.
  bool advance(bool everywhere = true);

  // The same for calls that only wait for a peer's next message: looks for it up to `looks` times,
  // or until a rank is missed that needs this core in order to come.
  // Requires  the transport shows what peers did without being polled (TransportTraits::immediate).
  bool linger(int looks);
  // Whether calls are short enough for that.
  bool may_linger() const { return is_combining() || (!short_->empty() && !cut_undecided_); }

  // Whether nothing but a look shows what the call waits for: no poll of the transport tells.
  bool is_combining() const { return combining_.group_size() > 0; }
  // Before the transport sleeps: what the call waits for is to end that.
  void prepare_to_sleep();

  // Ranks that run on this one's very core, by number: to look for what they do is in vain.
  void share_core_with(std::vector<bool> ranks) { neighbours_ = std::move(ranks); }
  // Whether the last look missed one of them. Requires  may_linger().
  bool misses_neighbour();

  // Whether the latest call loads copies that it could store, as was agreed before it.
  bool pulls() const { return copies_.now != CopyWay::stored; }

  // By which of its plans it is made, as was agreed before it.
  bool uses_plain_plan() const { return plan_.plain; }
  std::size_t plan_number() const { return plan_.number; }

  bool done() const { return finished_ || !status_.ok(); }
  const Status& status() const { return status_; }

  // Ends the call, and every later one, with `status`, and tells all connected peers.
  void fail(Status status);
  // The same without telling: all ranks find the failure by themselves, each with its own words.
  void fail_alone(Status status);

  // Asked about every failure before it counts, by someone who may know more.
  void explain_with(std::function<Status(Status)> explain) { explain_ = std::move(explain); }

  // After a failure: takes the memory of the call away from peers that do not know of it yet, or
  // that stand still and may wake up at any time. To be done before the failure is returned.
  void withdraw_memory();

  // Looks for calls of peers that this rank takes no part in, while nothing moves: it fails then.
  // Not on the way of a call; it looks at every connection.
  void find_strays();

  // The record of the call, as its peers get it. Requires  a started call.
  std::span<const std::byte, kArrivalBytes> record() const { return call_.record; }
  // A peer has waited long for this rank, in the call of that record. Fails when it is another one
  // than this rank makes, or made as the call of that number.
  void answer_inquiry(Rank from, std::span<const std::byte> record);

  // Whom the call waits for. Right once advance() has nothing more to do.
  // Cost  a look at every step; not for the hot path.
  struct Awaited {
    Rank rank = Status::kUnknownRank;  // the first of them, and
    std::string what = "nobody";       // what for: "data from rank 3"
    std::vector<Rank> all;

    void add(Rank awaited, std::string text);
  };
  Awaited awaited();

  std::size_t scratch_bytes() const { return scratch_bytes_; }

  // Of programs as they are run, with what is known of connections and slices. An estimate.
  std::size_t program_bytes() const;

 private:
  enum class Phase : std::uint8_t { waiting, granted, offered, complete };
  using Operands = std::span<const CallOperand>;

  // One connection. Messages are numbered through, from when it was made, in both directions.
  struct Stream {
    Endpoint* endpoint = nullptr;
    std::uint64_t sent_before = 0;  // messages of earlier calls
    std::uint64_t received_before = 0;
    // Of this call, by Way: issued; and taken or, of those that the peer pushes, granted.
    std::array<std::uint64_t, kWayCount> sent = {};
    std::array<std::uint64_t, kWayCount> received = {};
    std::size_t summed = 0;  // elements of the message at its head (executor_long.cc)
  };

  using Peer = PeerState;  // by stream number of the program

  struct Channel {
    std::size_t first_slice = 0;      // everything before is complete
    std::vector<Phase> phases;        // window slots x steps
    std::vector<std::int32_t> first;  // per window slot: steps before are complete
    std::vector<std::int32_t> left;   // per window slot: incomplete steps
  };

  // What is laid out for a short staged call and is not the same for even and odd numbers.
  struct Twin {
    std::shared_ptr<const collectives::LoweredProgram> lowered;
    CallProgram* program = nullptr;
    std::unique_ptr<ShortProgram> steps = std::make_unique<ShortProgram>();
    std::unique_ptr<OneRound> round = std::make_unique<OneRound>();
    std::vector<Endpoint*> told_alike;
    std::vector<Stream*> streams;
    std::vector<Peer> peers;

    std::size_t memory_bytes() const;
  };

  // A step of one slice on one channel, while it is being tried.
  struct Attempt {
    int channel;
    std::size_t slice;
    const CallStep& step;
    Phase* phases;             // of all steps of this slice
    Phase& phase;              // of this step
    std::size_t elements = 0;  // of each of its messages, once measured
    std::size_t bytes = 0;
    // The transport moves the message between itself and memory (executor_long.cc).
    bool sends_long = false;
    bool takes_long = false;
    bool sums_long = false;  // as it comes
    bool alike = false;      // what goes through queues is written once, for all (told_)
  };

  // Where an operand of the step being tried lies: a message's payload in one piece, or chunks of a
  // buffer from `chunk` on.
  struct Place {
    std::byte* base = nullptr;  // null without a chunk: nothing is to be touched
    std::int32_t chunk = -1;
    Buffer buffer = Buffer::input;  // of the own memory
  };

  // A call's plan in the form that is run. Calls come back with the same few plans.
  using SharedProgram = std::shared_ptr<const collectives::LoweredProgram>;
  const SharedProgram& choose_program(const Call& call, const collectives::Plan& plan);
  const SharedProgram& choose_copies(const Call& call, const collectives::Plan& plan);
  Rank leader() const { return PullChoice::leader(call_.signature, transport_.size()); }
  bool agrees_on_copies(std::size_t peer, CopyWays theirs);
  CopyWay agreed_way() const;
  CopyWay second_way(bool plain);
  void propose_for_plain();
  bool may_choose() const { return two_programs_ || attachable_; }
  bool repeats(const Call& call, const collectives::Plan& plan, const SharedProgram& program) const;
  // Of plans that alternate (executor_twins.cc).
  static const SharedProgram& turn_of(const Call& call, const collectives::Plan& plan);
  bool repeats_twin(const Call& call, const collectives::Plan& plan, const SharedProgram& program);
  void keep_as_twin(const Call& call, const collectives::Plan& plan, const SharedProgram& program);
  void exchange_twins();
  Status set_up(const collectives::Plan& plan, const SharedProgram& shared);
  void take_program(const SharedProgram& program);
  Status prepare_scratch();
  Status connect();
  bool begin_call();

  // Of calls that have more than one plan (executor_plans.cc).
  const collectives::Plan& foretold_plan(const collectives::Plan& usual, const Signature& call);
  const collectives::Plan& choose_foretold_plan(const collectives::Plan& usual);
  const collectives::Plan& choose_plan(const collectives::Plan& usual, const Signature& call);
  void tell_of(const collectives::Plan& plan, const collectives::Plan& usual);
  void note_plan();

  // Into slices (executor_cut.cc).
  Status choose_cut(const collectives::Plan& plan);
  Result<std::size_t> choose_slices(const collectives::Plan& plan);
  std::size_t measure_blocks();
  void cut_into(std::size_t slices);
  bool decide_cut();
  void choose_way();
  std::size_t sent_at_once() const;
  void begin_slices();
  void reset_channels();

  bool hear_of_failures();
  bool is_stray(Rank from, const Frame& frame) const;
  void pass_on_failure(const collectives::Plan& plan);
  bool meet_peers(bool everywhere);
  bool meet(std::size_t peer);
  bool send_arrival(std::size_t peer);
  bool take_arrival(std::size_t peer);
  bool accept_arrival(std::size_t peer, std::span<const std::byte> record);
  bool reject_arrival(std::size_t peer, std::span<const std::byte> record);
  bool refuse_nonsense(std::size_t peer, std::span<const std::byte> record);
  std::size_t buffer_bytes(Buffer buffer) const;
  bool import_memory(std::size_t peer, const MemoryReferences& memory);
  bool locate(std::size_t peer, Buffer buffer, const MemoryReference& reference);
  MemoryReferences export_memory(std::size_t peer);

  bool conclude();
  void finish();
  bool advance_steps() { return short_->empty() ? advance_channels() : advance_short(); }
  bool advance_channels();
  bool advance_channel(int channel);
  void slide_window(Channel& channel);
  bool advance_slice(int channel, std::size_t slice);

  bool try_step(Attempt& attempt);
  bool dependencies_complete(const Attempt& attempt) const;
  bool grant_landings(Attempt& attempt);
  bool turn_has_come(const Attempt& attempt);
  bool sources_ready(Attempt& attempt);
  bool source_ready(Attempt& attempt, const CallOperand& source, Place& place);
  bool destinations_ready(Attempt& attempt);
  bool destination_ready(Attempt& attempt, const CallOperand& destination, Place& place);
  bool find_payload(int channel, std::size_t peer, std::size_t due,
                    std::span<const std::byte>& payload);
  std::optional<std::size_t> record_bytes(int channel, std::size_t peer, std::size_t bytes);
  std::span<const std::byte> record_before(std::size_t message_bytes);
  FrameTag note_record_sent(std::size_t peer);
  bool are_alike(int channel, Operands destinations, std::size_t bytes);
  bool reserve_alike(Attempt& attempt, Place* place);
  std::byte* reserve_for_told(int channel, Operands sources, std::size_t bytes);
  void commit_alike(Operands destinations, std::size_t bytes);
  std::byte* reserve_room(int channel, std::size_t peer, std::size_t bytes);
  void commit_message(int channel, std::size_t peer, std::size_t bytes);
  void run(const Attempt& attempt);
  void run_piece(const Attempt& attempt, int piece, std::size_t elements_before,
                 std::size_t elements, std::size_t elements_done = 0);
  void add_source(const CallOperand& operand, const std::byte* source);
  void forget_sources();
  void choose_stores();
  bool times_copies() const { return leads_ && pull_choice_.wants_time(); }
  bool is_timed() const { return times_copies() || finds_out_; }
  void note_time(std::uint64_t ticks);
  void forget_destinations();
  bool is_onto_itself(const CallOperand& operand, const std::byte* destination) const;
  void add_destination(const CallOperand& operand, std::byte* destination);
  void compute(StepKind kind, bool finish, std::size_t elements);
  void store_far(kernels::StoreHint way, StepKind kind, bool finish, std::size_t elements);
  void store_through_caches(kernels::StoreHint way, StepKind kind, bool finish,
                            std::size_t elements);
  void store_own(StepKind kind, bool finish, std::size_t elements);
  void store_where_quicker(StepKind kind, bool finish, std::size_t elements);
  void store_apart(kernels::StoreHint way, StepKind kind, bool finish, std::size_t elements);
  void store(StepKind kind, bool finish, std::size_t elements, kernels::StoreHint stores);
  // Peers' memory was read before what is asked next: first the data, then the word.
  static void end_reading() {
#ifndef TUTTI_SANITIZED  // the thread sanitizer does not know fences
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
  }
  bool vouches_for_late_reads(Operands destinations);
  void finish_messages(Attempt& attempt);
  bool offers_taken(const Attempt& attempt);

  // Of long messages (executor_long.cc).
  bool is_long(std::size_t bytes) const;
  bool takes_long(const CallStep& step) const;
  bool sums_long(const CallStep& step) const;
  void find_long_beginnings();
  void look_for_long(Attempt& attempt);
  bool move_long(Attempt& attempt);
  std::size_t bytes_before(const Attempt& attempt, const CallOperand& message) const;
  bool take_long(Attempt& attempt);
  bool sum_long(Attempt& attempt);
  bool send_long(Attempt& attempt);
  std::byte* memory_of(const Attempt& attempt, const CallOperand& operand) const;

  // Of memory that the system copies (executor_attached.cc).
  bool attaches() const { return copies_.now == CopyWay::attached; }
  bool may_attach(const Call& call, const collectives::Plan& plan) const;
  bool is_attached(const CallOperand& message) const {
    return attaches() && message.is_message && message.way != Way::staged && !message.mine &&
           peers_[message.stream].attached(message.buffer);
  }
  void compute_attached(StepKind kind, bool finish, std::size_t elements);
  void copy_attached(std::size_t bytes);
  void reduce_attached(bool finish, std::size_t elements);
  bool reduce_piece(bool finish, std::size_t before, std::size_t elements);
  Status prepare_pieces();
  bool read_attached(Endpoint& from_whom, std::byte* to, const std::byte* from, std::size_t bytes);
  bool write_attached(const std::byte* from, std::size_t before, std::size_t bytes);
  bool copied(const Status& status);
  bool is_copied() const { return !attaches() || status_.ok(); }  // nothing went wrong

  // Of calls that are not cut (executor_short.cc).
  bool advance_short();
  template <bool kDirect>
  bool advance_short();
  template <bool kDirect>
  bool try_short(const ShortStep& step, std::uint64_t bit);
  bool send_at_once(const ShortStep& step, std::uint64_t bit);
  bool send_message(std::size_t peer, std::span<const std::byte> body);
  bool may_begin(const ShortStep& step) const {
    const std::uint64_t left = step.depends & ~short_done_.complete;
    return left == 0 || are_fused(step, left);
  }
  bool are_fused(const ShortStep& step, std::uint64_t left) const;
  bool grant_landings(const ShortStep& step);
  bool neighbours_have_sent(const ShortStep& step);
  template <bool kDirect>
  bool find_sources(const ShortStep& step);
  template <bool kDirect>
  bool find_source(const CallOperand& source, std::size_t offset, std::size_t bytes,
                   const std::byte*& place);
  bool find_message(const CallOperand& source, std::size_t due,
                    std::span<const std::byte>& payload);
  template <bool kDirect>
  bool find_destinations(const ShortStep& step);
  template <bool kDirect>
  bool find_destination(const CallOperand& destination, std::size_t offset, std::size_t bytes,
                        std::byte*& place);
  template <bool kDirect>
  void finish_messages(const ShortStep& step);
  bool offers_taken(const ShortStep& step);
  bool reserve_alike(const ShortStep& step, std::size_t bytes);
  Operands destinations_of(const ShortStep& step) const {
    return {&program_->operand(step.destinations), step.end - step.destinations};
  }
  // False, for the step that lacks something of that peer.
  bool missing(std::size_t peer) {
    misses_neighbour_ |= peers_[peer].is_neighbour;
    return false;
  }
  Operands sources_of(const ShortStep& step) const {
    return {&program_->operand(step.sources), step.destinations - step.sources};
  }

  // Of calls of one round (executor_one_round.cc).
  void enter_again(const Call& call);
  bool relay();
  bool find_messages(const OneRound::Receives& receives, int looks, std::uint64_t& missed_at);
  bool has_room_for(const std::vector<OneRound::Send>& sends);
  std::span<const std::byte> body_of(const OneRound::Send& send) const;
  void run_action(const OneRound::Action& action, std::byte* to = nullptr);
  const std::byte* find_source(const OneRound::Place& from) const;
  void copy_one(const OneRound::Action& action);
  bool any_has_failed() const;
  void take_messages();
  void resume();

  // Of those that combine in shared memory (executor_combining.cc).
  bool may_combine(const Call& call, const collectives::Plan& plan) const;
  void set_up_combining(int group_size);
  void begin_combining();
  void lead();
  void store_sum();
  bool is_of_this_call(Combining::Record record, Rank rank);
  bool find_sums(int looks);
  void end_combining();
  bool advance_combining(int looks);
  void find_awaited_parts(Awaited& found) const;

  // Of direct ones (executor_direct_round.cc).
  void lay_out_direct_round();
  bool post_direct_again(const Call& call, const collectives::Plan& usual,
                         const collectives::Plan& plan);
  bool post_record(std::size_t peer);
  bool find_direct_again(int looks);
  bool await_record(std::size_t peer, int& looks);
  bool accept_usual(std::size_t peer, std::span<const std::byte> record);
  bool find_usual(std::size_t peer, std::span<const std::byte> record);
  bool run_actions(std::size_t end);
  bool run_spare(std::size_t elements_most);
  bool spares_are_long() const;
  void finish_spares();
  void run_met(const ShortStep& step, DirectRound::Part part, std::size_t first,
               std::size_t elements);
  std::uint64_t number_of(const DirectRound::Word& word);
  void resume_direct();
  void note_done(std::uint32_t number);

  void show_phases();
  void add_absent(std::size_t peer, Awaited& found) const;
  void find_awaited(Attempt& attempt, Awaited& found);
  bool find_awaited_sources(Attempt& attempt, Awaited& found);
  void find_awaited_destination(Attempt& attempt, const CallOperand& destination, Awaited& found);

  Stream& stream(int channel, std::size_t peer) {
    return *call_streams_[static_cast<std::size_t>(channel) * peers_.size() + peer];
  }
  bool is_next_to_send(const Attempt& attempt, const CallOperand& o);
  bool is_next_to_receive(const Attempt& attempt, const CallOperand& o);
  std::uint64_t number_sent(const Attempt& attempt, const CallOperand& o);
  std::uint64_t number_received(const Attempt& attempt, const CallOperand& o);
  bool reaches(const Attempt& attempt) const;
  std::uint64_t messages_before(std::span<const std::uint32_t> messages, std::size_t slice,
                                std::uint32_t ordinal) const;
  std::size_t piece_elements(const Attempt& attempt, int piece) const;
  void measure(Attempt& attempt) const;
  std::byte* own_memory(Buffer buffer) const { return own_[static_cast<std::size_t>(buffer)]; }
  bool is_neighbour(Rank rank) const {
    return !neighbours_.empty() && neighbours_[static_cast<std::size_t>(rank)];
  }
  Rank rank_of(std::size_t peer) const { return program_->peers()[peer].rank; }

  Transport& transport_;
  const ExecutorOptions options_;
  const std::size_t frame_bytes_max_;
  std::size_t at_once_bytes_ = 0;  // of a call's record and the data behind it, at most
  const bool moves_itself_;        // as in TransportTraits
  const bool keeps_unsent_;        // what was committed may still be in this process
  // Only the peer's core reads what is stored for it: no transport that sums it or moves it on.
  const bool peers_read_at_once_;
  const bool transport_attaches_;  // as in TransportTraits
  PlanChoice plan_choice_;
  bool has_plans_ = false;   // the call has more than one, and
  PlanChoice::Choice plan_;  // is made by this one
  Combining combining_;
  PullChoice pull_choice_;
  Status status_;
  bool finished_ = true;
  std::function<Status(Status)> explain_;
  bool interrupted_ = false;  // the call failed under way

  Call call_;
  CopyWays copies_;
  bool two_programs_ = false;    // of the plan: one that stores copies, one that loads them
  bool attachable_ = false;      // plain memory of the call may be copied by the system
  bool meets_plain_ = false;     // and some of it is
  bool own_is_plain_ = false;    // some of this rank's
  bool laid_to_attach_ = false;  // the call is cut so
  bool leads_ = false;           // this call's copies are timed, and the next one's chosen here
  std::uint64_t all_there_ = 0;  // in ticks: when the last arrival came, of a call that is timed
  SharedProgram lowered_;
  collectives::PlanSettings settings_;
  CallProgram* program_ = nullptr;
  // Of the call's shape; empty when it is cut. Held so that twins are exchanged quickly.
  std::unique_ptr<ShortProgram> short_ = std::make_unique<ShortProgram>();
  struct {  // its steps, by bit
    std::uint64_t granted = 0;
    std::uint64_t ran = 0;
    std::uint64_t complete = 0;
  } short_done_;
  // Of the call's shape; empty when it is more than that.
  std::unique_ptr<OneRound> round_ = std::make_unique<OneRound>();
  std::size_t posted_ = 0;             // of its messages
  std::vector<Endpoint*> told_alike_;  // to whom it sends
  // Of the step being tried: who is sent the same, and whose operand stands for all of them.
  std::vector<Endpoint*> told_;
  std::uint32_t told_as_ = 0;
  std::size_t told_before_ = 0;  // bytes of the call's record before it
  bool alike_ = false;           // of a short step: it is written once, there
  std::byte* told_place_ = nullptr;
  std::array<std::byte, kRecordRoomMax> long_record_ = {};  // as before a long message
  std::vector<const std::byte*> messages_;                  // by peer: what came in it
  // Of the call's shape, once a call of it was made twice; empty where it is cut, or more than
  // that.
  DirectRound direct_round_;
  bool direct_round_laid_ = false;
  bool is_again_ = false;                   // the call is like the one before it
  std::vector<MemoryReferences> exported_;  // by peer: the own memory, as it is told
  std::size_t actions_done_ = 0;            // of direct_round_, and
  std::size_t spares_done_ = 0;             // those of them that are spare, and
  std::size_t spare_elements_ = 0;          // of the next one
  std::size_t ends_heard_ = 0;
  bool reads_peers_ = false;  // something lies in a peer's memory since failures were asked for
  bool misses_neighbour_ = false;                       // in the last look at a short program
  std::vector<bool> neighbours_;                        // by rank; empty where there are none
  std::vector<std::unique_ptr<CallProgram>> programs_;  // the latest first
  collectives::Geometry geometry_;
  std::size_t slice_elements_ = 1;             // of a block
  std::vector<std::uint32_t> operand_slices_;  // of blocks that differ in size
  std::size_t slices_ = 1;
  std::size_t slices_by_frame_ = 1;   // if any message may be staged
  std::size_t slices_if_direct_ = 1;  // if none is
  bool cut_undecided_ = false;        // which of these the call has; no step is taken before
  bool long_slices_ = false;          // which it was the last time
  std::size_t element_bytes_ = 1;
  std::size_t window_ = 1;
  std::size_t result_bytes_ = 0;  // of a rank
  bool streaming_ = false;        // its stores go past the caches
  bool finds_out_ = false;        // whether that is quicker
  StreamChoice stream_choice_;
  // Those of the latest calls, by number.
  static constexpr std::size_t kRecordsKept = 32;
  std::array<std::array<std::byte, kArrivalBytes>, kRecordsKept> records_ = {};

  std::vector<Stream> streams_;        // rank x channel, for the communicator's life
  std::vector<Stream*> call_streams_;  // channel x peer of the program
  std::vector<Peer> peers_;
  Twin twin_;  // of what is laid out for calls of even numbers and for odd ones, the other
  std::vector<Channel> channels_;
  std::size_t arrivals_due_ = 0;
  std::size_t slices_left_ = 0;         // of all channels
  std::array<std::byte*, 3> own_ = {};  // of this call, by Buffer
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  bool scratch_is_shareable_ = false;
  // Of the step being tried, by operand; kept to spare allocations.
  std::vector<Place> places_;
  Pointers<const std::byte> source_pointers_;
  Pointers<std::byte> destination_pointers_;
  Pointers<std::byte> far_pointers_;  // destinations that go to other cores
  bool far_is_queued_ = false;        // at least one of them is in a queue
  // Where sources lie: in own buffers; in a queue, where another core stored them; or in another
  // rank's buffer. Of several, the farthest.
  enum class Sources : std::uint8_t { own, fetched, loaded };
  Sources sources_are_ = Sources::own;
  // In calls that attach: the source lies in that peer's process; null: it does not.
  std::vector<Endpoint*> attached_sources_;
  std::vector<std::pair<Endpoint*, std::byte*>> attached_destinations_;
  bool any_attached_ = false;                // of the sources and destinations so far
  Pointers<const std::byte> whole_sources_;  // of a sum that is made by pieces
  Pointers<std::byte> whole_destinations_;
  std::unique_ptr<std::byte, decltype(&std::free)> pieces_{nullptr, &std::free};
  std::size_t pieces_bytes_ = 0;
  std::size_t piece_elements_max_ = 1;
  StoreChoice stores_;                      // which way they go
  std::vector<std::byte> partial_results_;  // of custom reductions
};

}  // namespace tutti::runtime

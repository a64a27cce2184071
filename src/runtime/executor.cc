// The life of a call: set up, meet the peers, move every channel forward until all is complete.
// What one step does is in executor_steps.cc; whom it waits for in executor_awaited.cc.
#include "runtime/executor.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "collectives/footprint.hpp"
#include "runtime/flight/ticks.hpp"
#include "runtime/frame_tag.hpp"
#include "runtime/notice.hpp"

namespace tutti::runtime {
namespace {

// Programs that are kept laid out: as many shapes as a training step calls again and again.
constexpr std::size_t kProgramsKept = 16;

static_assert(PlanChoice::kWords <= kSharedWordCount);

std::size_t index(int value) { return static_cast<std::size_t>(value); }

}  // namespace

Executor::Executor(Transport& transport, const ExecutorOptions& options)
    : transport_(transport),
      options_(options),
      frame_bytes_max_(transport.frame_bytes_max()),
      moves_itself_(transport.traits().moves_itself),
      keeps_unsent_(!transport.traits().immediate),
      peers_read_at_once_(transport.traits().direct && transport.traits().immediate),
      transport_attaches_(transport.traits().attaches),
      plan_choice_(transport.shared_words(), transport.rank() == 0),
      combining_(transport.shared_memory(), transport.rank(), transport.size()),
      streams_(index(transport.size()) * index(transport.channel_count())) {}

Executor::~Executor() {
  if (scratch_is_shareable_)
    transport_.release_shareable(scratch_);
  else
    std::free(scratch_);
}

bool Executor::repeats(const Call& call, const collectives::Plan& plan,
                       const SharedProgram& program) const {
  return program == lowered_ && attaches() == laid_to_attach_ && plan.settings == settings_ &&
         call.blocks == nullptr && call_.blocks == nullptr &&
         call.signature.count == call_.signature.count &&
         call.signature.type == call_.signature.type && call.custom == nullptr;
}

Status Executor::start(const Call& call, const collectives::Plan& usual) {
  TUTTI_ASSERT(done(), "one call at a time");
  if (!status_.ok()) {
    pass_on_failure(usual);
    return status_;
  }
  const collectives::Plan& plan = choose_plan(usual, call.signature);
  const auto& program = choose_program(call, plan);
  meets_plain_ = own_is_plain_ = false;
  const bool again = repeats(call, plan, program) || repeats_twin(call, plan, program);
  if (!again) keep_as_twin(call, plan, program);
  call_ = call;
  if (&plan != &usual) tell_of(plan, usual);
  is_again_ = again;
  if (!again) {
    lowered_.reset();  // so that a failure half way is not taken for done
    TUTTI_TRY(set_up(plan, program));
    if (call.custom == nullptr) lowered_ = program;  // values have other sizes
    settings_ = plan.settings;
  }
  // Whole slices begin where lines do, but those of leaders in turn, who do better with one frame.
  const bool lines_matter = peers_read_at_once_ && plan.odd == nullptr;
  at_once_bytes_ = lines_matter ? std::bit_floor(frame_bytes_max_) : frame_bytes_max_;
  own_ = {const_cast<std::byte*>(call.input), call.output, scratch_};  // indexed by Buffer
  records_[call.signature.sequence % kRecordsKept] = call_.record;
  choose_stores();
  if (is_combining()) {
    begin_combining();
    return status_;
  }
  if (is_timed()) all_there_ = flight::ticks();  // unless somebody comes later
  if (call_.signature.direct) transport_.begin_direct_call();
  if (begin_call()) return Status();
  hear_of_failures();
  return status_;
}

// Nothing of it has moved yet. False: a peer has failed already.
bool Executor::begin_call() {
  const bool direct = call_.signature.direct;
  program_->begin(!direct);
  for (Stream* s : call_streams_) s->sent = s->received = {};
  arrivals_due_ = 0;
  bool any_failed = false;
  for (Peer& peer : peers_) {
    peer.begin_call(direct);
    arrivals_due_ += peer.arrival_due ? 1 : 0;
    // A call that only sends waits for nobody, and would never hear.
    any_failed |= peer.endpoint->signalled(Signal::failed) != 0;
  }
  begin_slices();
  reads_peers_ = false;
  cut_undecided_ = slices_if_direct_ != slices_by_frame_;
  finished_ = false;
  return !any_failed;
}

// What only depends on the plan, the type and the count.
Status Executor::set_up(const collectives::Plan& plan, const SharedProgram& shared) {
  const collectives::LoweredProgram& program = *shared;
  const Signature& signature = call_.signature;
  element_bytes_ = call_.element_bytes();
  const int channels = plan.settings.channels;
  TUTTI_ASSERT(channels >= 1 && channels <= transport_.channel_count(),
               "the plan uses channels that exist");
  take_program(shared);
  result_bytes_ =
      signature.count * element_bytes_ * index(block_count(program.shape, Buffer::output));
  places_.resize(program_->operands_max());
  source_pointers_.make_room(program_->operands_max());
  destination_pointers_.make_room(program_->operands_max());
  far_pointers_.make_room(program_->operands_max());
  whole_sources_.make_room(program_->operands_max());
  whole_destinations_.make_room(program_->operands_max());
  channels_.resize(index(channels));
  TUTTI_TRY(choose_cut(plan));
  TUTTI_TRY(prepare_scratch());
  if (attaches() && is_reduction(signature.collective)) TUTTI_TRY(prepare_pieces());
  TUTTI_TRY(connect());
  set_up_combining(may_combine(call_, plan) ? plan.combining_group : 0);
  find_long_beginnings();
  round_->clear();
  direct_round_.clear();
  direct_round_laid_ = false;
  if (!short_->empty() && !signature.direct && call_.custom == nullptr)
    round_->lay_out(*program_, *short_, element_bytes_);
  told_alike_.clear();
  for (const OneRound::Send& send : round_->sends())
    told_alike_.push_back(peers_[send.peer].endpoint);
  round_->hear_first([this](std::uint32_t peer) { return peers_[peer].is_neighbour; });
  messages_.resize(std::max(messages_.size(), peers_.size()));
  return Status();
}

void Executor::take_program(const SharedProgram& program) {
  auto known = std::find_if(programs_.begin(), programs_.end(),
                            [&](const auto& p) { return &p->lowered() == program.get(); });
  if (known == programs_.end()) {
    if (programs_.size() == kProgramsKept) programs_.pop_back();
    programs_.push_back(std::make_unique<CallProgram>(program));
    known = programs_.end() - 1;
  }
  std::rotate(programs_.begin(), known, known + 1);
  program_ = programs_.front().get();
}

std::size_t Executor::program_bytes() const {
  using collectives::bytes_of;
  std::size_t bytes = bytes_of(programs_) + bytes_of(streams_) + bytes_of(call_streams_) +
                      bytes_of(peers_) + bytes_of(channels_) + bytes_of(operand_slices_) +
                      short_->memory_bytes() + round_->memory_bytes() + bytes_of(messages_) +
                      bytes_of(told_alike_) + direct_round_.memory_bytes() + bytes_of(exported_) +
                      twin_.memory_bytes() + plan_choice_.memory_bytes();
  for (const auto& program : programs_) bytes += program->memory_bytes();
  for (const Channel& channel : channels_)
    bytes += bytes_of(channel.phases) + bytes_of(channel.first) + bytes_of(channel.left);
  return bytes;
}

Status Executor::prepare_scratch() {
  const std::size_t needed =
      index(program_->lowered().shape.scratch_blocks) * call_.signature.count * element_bytes_;
  if (needed <= scratch_bytes_) return Status();
  if (scratch_is_shareable_)
    transport_.release_shareable(scratch_);
  else
    std::free(scratch_);
  scratch_ = static_cast<std::byte*>(transport_.allocate_shareable(needed));
  scratch_is_shareable_ = scratch_ != nullptr;
  if (scratch_ == nullptr) scratch_ = static_cast<std::byte*>(std::malloc(needed));
  scratch_bytes_ = scratch_ == nullptr ? 0 : needed;
  if (scratch_ != nullptr) return Status();
  return Status(StatusCode::system_error, fmt::format("no memory for {} bytes of scratch", needed));
}

// Gets the connections of all peers of the program.
Status Executor::connect() {
  const std::vector<CallPeer>& peers = program_->peers();
  peers_.resize(peers.size());
  call_streams_.clear();
  for (int channel = 0; channel < static_cast<int>(channels_.size()); ++channel) {
    for (const CallPeer& peer : peers) {
      Stream& s = streams_[index(peer.rank) * index(transport_.channel_count()) + index(channel)];
      if (s.endpoint == nullptr) {
        Result<Endpoint*> endpoint = transport_.endpoint(peer.rank, channel);
        if (!endpoint.ok()) {
          fail(endpoint.status());
          return status_;
        }
        s.endpoint = *endpoint;
        if (is_neighbour(peer.rank)) s.endpoint->share_core();
      }
      call_streams_.push_back(&s);
    }
  }
  for (std::size_t peer = 0; peer < peers.size(); ++peer) {
    peers_[peer].endpoint = call_streams_[peer]->endpoint;
    peers_[peer].is_neighbour = is_neighbour(peers[peer].rank);
    peers_[peer].sends = !peers[peer].receives.empty();
  }
  return Status();
}

// ---- Failures ----

void Executor::fail_alone(Status status) {
  if (!status_.ok()) return;
  status_ = explain_ ? explain_(std::move(status)) : std::move(status);
  interrupted_ = !finished_;
}

void Executor::fail(Status status) {
  if (!status_.ok()) return;
  fail_alone(std::move(status));
  const std::uint64_t word = encode(Notice::of(status_));
  for (const Stream& s : streams_)
    if (s.endpoint != nullptr) s.endpoint->signal(Signal::failed, word);
}

void Executor::withdraw_memory() {
  if (!std::exchange(interrupted_, false) || !call_.signature.direct) return;
  for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    const bool exported = std::any_of(peers_.begin(), peers_.end(),
                                      [&](const Peer& peer) { return peer.mine(buffer); });
    if (exported) transport_.withdraw_memory(own_memory(buffer), buffer_bytes(buffer));
  }
  transport_.end_direct_call();
}

// Peers of a call that this rank will never make may not be connected to anybody who knows.
void Executor::pass_on_failure(const collectives::Plan& plan) {
  for (const collectives::LoweredProgram* program : {plan.program.get(), plan.odd.get()}) {
    if (program == nullptr) continue;
    for (const Rank peer : program->peers) {
      Stream& s = streams_[index(peer) * index(transport_.channel_count())];
      if (s.endpoint != nullptr) continue;
      const Result<Endpoint*> endpoint = transport_.endpoint(peer, 0);
      if (!endpoint.ok()) continue;
      s.endpoint = *endpoint;
      s.endpoint->signal(Signal::failed, encode(Notice::of(status_)));
    }
  }
}

// Asked while nothing moves: what a peer sent before it failed may be all that a call needs.
bool Executor::hear_of_failures() {
  const std::size_t channels = index(transport_.channel_count());
  for (std::size_t s = 0; s < streams_.size(); s += channels) {
    if (streams_[s].endpoint == nullptr) continue;
    const std::uint64_t word = streams_[s].endpoint->signalled(Signal::failed);
    if (word == 0) continue;
    const Rank from = static_cast<Rank>(s / channels);
    fail(decode_notice(word).told_by(from).with_context(
        fmt::format("rank {}: {}", transport_.rank(), to_string(call_.signature))));
    return true;
  }
  return false;
}

// ---- Arrivals ----

// Sends what is due and takes what has come. Without direct messages, records travel with data.
// Neighbours come first: while one is missed, a look at others is in vain and takes lines from the
// cores that are about to write them. `everywhere`: there is time for that.
bool Executor::meet_peers(bool everywhere) {
  bool moved = false;
  if (call_.signature.direct)
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (!peers_[peer].arrival_sent) moved |= send_arrival(peer);
  bool misses_any = false;
  for (const bool neighbours : {true, false}) {
    if (misses_any && !everywhere) break;
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      if (peers_[peer].is_neighbour != neighbours) continue;
      moved |= meet(peer);
      misses_any |= peers_[peer].arrival_due;
    }
  }
  return moved;
}

bool Executor::meet(std::size_t peer) {
  Peer& p = peers_[peer];
  const bool taken = p.arrival_due && take_arrival(peer);
  if (!p.settled && !p.arrival_due && p.arrival_sent) {
    program_->decide_all(peer, p.mine, p.theirs);
    p.settled = true;
  }
  return taken;
}

std::size_t Executor::buffer_bytes(Buffer buffer) const {
  return index(block_count(program_->lowered().shape, buffer)) * call_.signature.count *
         element_bytes_;
}

MemoryReferences Executor::export_memory(std::size_t peer) {
  MemoryReferences memory;
  Peer& p = peers_[peer];
  const collectives::Addressable& touched = program_->peers()[peer].ours;
  for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    if (!touched(buffer)) continue;
    const std::size_t bytes = buffer_bytes(buffer);
    if (bytes == 0) continue;
    Endpoint& endpoint = *stream(0, peer).endpoint;
    MemoryReference reference = endpoint.export_memory(own_memory(buffer), bytes);
    own_is_plain_ |= !reference.addressable();
    meets_plain_ |= own_is_plain_;
    if (attaches() && !reference.addressable())
      reference = endpoint.attach_memory(own_memory(buffer), bytes);
    memory[static_cast<std::size_t>(buffer)] = reference;
    if (reference.addressable()) p.mine.add(buffer);
  }
  return memory;
}

// The record in a frame of its own; small staged messages carry it with their data instead.
bool Executor::send_arrival(std::size_t peer) {
  Peer& p = peers_[peer];
  if (p.arrival_sent) return false;
  Endpoint& endpoint = *stream(0, peer).endpoint;
  const bool direct = call_.signature.direct;
  const std::span<std::byte> room = endpoint.reserve(direct ? kDirectArrivalBytes : kArrivalBytes);
  if (room.data() == nullptr) return false;
  std::memcpy(room.data(), call_.record.data(), kArrivalBytes);
  std::size_t bytes = kArrivalBytes;
  if (direct) {
    const MemoryReferences memory = export_memory(peer);
    if (leads_ && own_is_plain_) propose_for_plain();
    bytes = encode_memory(memory, copies_, room.data() + kArrivalBytes);
  }
  endpoint.commit(static_cast<std::uint32_t>(FrameTag::arrival), bytes);
  p.arrival_sent = true;
  if (call_.signature.direct) program_->decide_offers(peer, p.mine);
  return true;
}

bool Executor::take_arrival(std::size_t peer) {
  Endpoint& endpoint = *stream(0, peer).endpoint;
  Frame frame;
  const bool found = peers_[peer].begins_long ? endpoint.peek_head(kDirectArrivalBytes, frame)
                                              : endpoint.peek(frame);
  if (!found) return false;
  const auto tag = static_cast<FrameTag>(frame.tag);
  if (tag != FrameTag::arrival && tag != FrameTag::arrival_with_data) {
    fail(Status(
        StatusCode::mismatch,
        fmt::format("rank {}: {}: rank {} sent data (tag {}) where its arrival was due",
                    transport_.rank(), to_string(call_.signature), rank_of(peer), frame.tag)));
    return false;
  }
  if (!accept_arrival(peer, frame.payload)) return false;
  // A record that came with data stays at the head of the queue for the step that takes the data.
  if (tag == FrameTag::arrival) endpoint.release();
  peers_[peer].record_leads = tag == FrameTag::arrival_with_data;
  return true;
}

bool Executor::accept_arrival(std::size_t peer, std::span<const std::byte> record) {
  const bool alike = record.size() >= kArrivalBytes &&
                     std::memcmp(record.data(), call_.record.data(), kArrivalBytes) == 0;
  if (!alike) return reject_arrival(peer, record);
  if (call_.signature.direct) {
    const std::optional<MemoryReferences> memory = decode_memory(record);
    if (!memory) return refuse_nonsense(peer, record);
    if (!agrees_on_copies(peer, decode_copies(record)) || !import_memory(peer, *memory))
      return false;
  }
  peers_[peer].arrival_due = false;
  if (--arrivals_due_ == 0 && is_timed()) all_there_ = flight::ticks();
  return true;
}

bool Executor::reject_arrival(std::size_t peer, std::span<const std::byte> record) {
  const std::optional<Arrival> arrival = decode_arrival(record);
  if (!arrival) return refuse_nonsense(peer, record);
  send_arrival(peer);  // so that the peer learns it too, and does not wait for us
  fail(Status(StatusCode::mismatch,
              disagreement(transport_.rank(), call_.signature, rank_of(peer), arrival->signature) +
                  (call_.custom == nullptr ? "" : "; ours is '" + call_.custom->name + "'")));
  return false;
}

bool Executor::refuse_nonsense(std::size_t peer, std::span<const std::byte> record) {
  fail(Status(StatusCode::corrupt_data,
              fmt::format("rank {} sent an arrival record of {} bytes that makes no sense",
                          rank_of(peer), record.size())));
  return false;
}

bool Executor::import_memory(std::size_t peer, const MemoryReferences& memory) {
  for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    const MemoryReference& reference = memory[static_cast<std::size_t>(buffer)];
    if (!reference.addressable()) {
      meets_plain_ |= program_->peers()[peer].theirs(buffer);
      continue;
    }
    if (!locate(peer, buffer, reference)) {
      // One that has failed may have freed it since.
      if (hear_of_failures()) return false;
      // The peer believes that we can; going on would hang.
      fail(Status(
          StatusCode::system_error,
          fmt::format("rank {} cannot map the {} of rank {} (region {}, offset {}, {} bytes)",
                      transport_.rank(), to_string(buffer), rank_of(peer), reference.region,
                      reference.offset, buffer_bytes(buffer))));
      return false;
    }
  }
  return true;
}

// False: it cannot be reached.
bool Executor::locate(std::size_t peer, Buffer buffer, const MemoryReference& reference) {
  Peer& p = peers_[peer];
  std::byte*& memory = p.memory[static_cast<std::size_t>(buffer)];
  Endpoint& endpoint = *stream(0, peer).endpoint;
  if (reference.attached()) {
    meets_plain_ = true;
    if (!attaches() || !endpoint.attached()) return false;
    memory = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(reference.offset));
    p.attached.add(buffer);
  } else {
    memory = endpoint.import_memory(reference, buffer_bytes(buffer));
    if (memory == nullptr) return false;
  }
  p.theirs.add(buffer);
  return true;
}

// ---- Progress ----

// Staged calls begin with their data, because it is what the peers wait for. Who moves meets the
// peers by their data, too.
bool Executor::advance(bool everywhere) {
  if (done()) return false;
  if (is_combining()) return advance_combining(0) || (!done() && hear_of_failures());
  bool moved = call_.signature.direct && meet_peers(everywhere);
  if (cut_undecided_ && !decide_cut()) return moved || (!done() && hear_of_failures());
  moved |= advance_steps();
  const bool meets = short_->empty() || !moved;
  if (meets && arrivals_due_ > 0 && !call_.signature.direct && meet_peers(true)) {
    moved = true;
    advance_steps();
  }
  if (conclude()) return true;
  return moved || (!done() && hear_of_failures());
}

// The end of the call, if it has come.
bool Executor::conclude() {
  if (slices_left_ > 0 || arrivals_due_ > 0 || !status_.ok()) return false;
  // Who leaves with something unsent may not come back for long, and the peers need it.
  if (keeps_unsent_ && !transport_.flushed()) return false;
  // A peer that failed may have taken its memory back before we read it.
  end_reading();
  if (!call_.signature.direct || !hear_of_failures()) finish();
  return true;
}

void Executor::finish() {
  auto of_channel = call_streams_.begin();
  while (of_channel != call_streams_.end()) {
    for (const CallPeer& peer : program_->peers()) {
      Stream& s = **of_channel++;
      if (call_.blocks == nullptr) [[likely]] {
        s.sent_before += slices_ * peer.sends.size();
        s.received_before += slices_ * peer.receives.size();
      } else {
        s.sent_before += messages_before(peer.sends, slices_, 0);
        s.received_before += messages_before(peer.receives, slices_, 0);
      }
    }
  }
  finished_ = true;
  if (has_plans_) note_plan();
  if (leads_) pull_choice_.met(meets_plain_);
  if (is_timed()) note_time(flight::ticks() - all_there_);
  if (!call_.signature.direct) return;
  transport_.end_direct_call();
  if (is_again_) lay_out_direct_round();
}

bool Executor::advance_channels() {
  bool moved = false;
  for (int channel = 0; channel < static_cast<int>(channels_.size()) && status_.ok(); ++channel)
    moved |= advance_channel(channel);
  return moved;
}

bool Executor::advance_channel(int channel) {
  Channel& c = channels_[index(channel)];
  bool moved = false;
  const std::size_t end = std::min(c.first_slice + window_, slices_);
  std::size_t slice = c.first_slice;
  while (slice < end && status_.ok()) {
    if (advance_slice(channel, slice)) {
      moved = true;
      slide_window(c);
    }
    // The window may have slid past more than this slice: peers that moved meanwhile can complete
    // the next ones first. Their slots serve other slices by now.
    slice = std::max(slice + 1, c.first_slice);
  }
  return moved;
}

// Past slices that are complete. Their slots then serve those that enter the window.
void Executor::slide_window(Channel& c) {
  while (c.first_slice < slices_ && c.left[c.first_slice % window_] == 0) {
    const std::size_t slot = c.first_slice % window_;
    const std::size_t steps = program_->steps().size();
    std::fill_n(c.phases.begin() + static_cast<std::ptrdiff_t>(slot * steps), steps,
                Phase::waiting);
    c.first[slot] = 0;
    c.left[slot] = static_cast<std::int32_t>(steps);
    ++c.first_slice;
    --slices_left_;
  }
}

bool Executor::advance_slice(int channel, std::size_t slice) {
  Channel& c = channels_[index(channel)];
  const std::size_t slot = slice % window_;
  const std::vector<CallStep>& steps = program_->steps();
  Phase* phases = c.phases.data() + slot * steps.size();
  bool moved = false;
  for (std::size_t s = index(c.first[slot]); s < steps.size(); ++s) {
    if (phases[s] != Phase::complete) {
      Attempt attempt{channel, slice, steps[s], phases, phases[s]};
      moved |= try_step(attempt);
      if (!status_.ok()) return moved;
      if (phases[s] == Phase::complete) --c.left[slot];
    }
    if (phases[s] == Phase::complete && s == index(c.first[slot])) ++c.first[slot];
  }
  return moved;
}

}  // namespace tutti::runtime

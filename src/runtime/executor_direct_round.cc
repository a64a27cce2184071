// How a short direct call (direct_round.hpp) is made again between the same ranks: as in calls of
// one round (executor_one_round.cc) nothing is set up, and the general way takes over where a peer
// is late or anything is not as it was, as if it had done what was done here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/pause.hpp"
#include "runtime/chosen_plan.hpp"
#include "runtime/executor.hpp"
#include "runtime/flight/ticks.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

constexpr int kWhole = 0;  // the only channel

// Longer ones a rank copies for itself before all else, as they and what it copies for its peers do
// not fit the nearer caches together. Source: near cores of a Zen 5, with copies for oneself before
// and after those for the peer: all_gather of 64 KiB 0.90 us and 0.88, 512 KiB 5.8 and 5.9, 1 MiB
// 12.0 and 13.2; far ones, 64 KiB 1.94 and 1.73.
constexpr std::size_t kSpareBytesMost = std::size_t{128} << 10;
// Of what is copied while a peer is waited for, before it is looked for again: what takes twice as
// long as news of it, or less where it is far.
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;

std::size_t at(Way way) { return static_cast<std::size_t>(way); }

}  // namespace

// At the end of a call, of which the next ones may be made this way.
void Executor::lay_out_direct_round() {
  if (short_->empty() || call_.custom != nullptr) return;
  const bool as_before = std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.mine == peer.usual_mine && peer.theirs == peer.usual_theirs;
  });
  if (as_before && direct_round_laid_) return;
  direct_round_laid_ = true;
  direct_round_.lay_out(*program_, *short_);
  exported_.resize(peers_.size());
  for (Peer& peer : peers_) {
    peer.usual_mine = peer.mine;
    peer.usual_theirs = peer.theirs;
  }
}

// Whose choice it is to load or store has nothing to say before it is known that the call is made.
bool Executor::post_direct_again(const Call& call, const collectives::Plan& usual,
                                 const collectives::Plan& plan) {
  if (direct_round_.empty() || short_->empty() || !done() || !status_.ok()) return false;
  pull_choice_.begin(call.signature);
  if (may_choose()) copies_.now = agreed_way();
  const bool other_program = copies_.now != CopyWay::stored && two_programs_;
  if (!repeats(call, plan, other_program ? plan.pulled : plan.program)) return false;
  enter_again(call);
  meets_plain_ = own_is_plain_ = false;
  transport_.begin_direct_call();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    peers_[peer].begin_again(true);
    peers_[peer].mine = {};
    exported_[peer] = export_memory(peer);
    if (peers_[peer].mine == peers_[peer].usual_mine) continue;
    transport_.end_direct_call();
    return false;
  }
  is_again_ = false;  // nothing is to be laid out
  choose_foretold_plan(usual);
  if (&plan != &usual) tell_of(plan, usual);
  choose_copies(call, plan);
  records_[call_.signature.sequence % kRecordsKept] = call_.record;
  actions_done_ = ends_heard_ = posted_ = 0;
  spares_done_ = spare_elements_ = 0;
  while (posted_ < peers_.size() && post_record(posted_)) ++posted_;
  if (is_timed()) all_there_ = flight::ticks();  // unless one is waited for
  if (posted_ == peers_.size()) run_actions(direct_round_.early());
  if (spares_are_long()) finish_spares();
  return true;
}

bool Executor::post_record(std::size_t peer) {
  Endpoint& endpoint = *peers_[peer].endpoint;
  const std::span<std::byte> room = endpoint.reserve(kDirectArrivalBytes);
  if (room.data() == nullptr) return false;
  std::memcpy(room.data(), call_.record.data(), kArrivalBytes);
  const std::size_t bytes = encode_memory(exported_[peer], copies_, room.data() + kArrivalBytes);
  endpoint.commit(static_cast<std::uint32_t>(FrameTag::arrival), bytes);
  peers_[peer].arrival_sent = true;
  return true;
}

// Who needs this core in order to come, or to end, is looked for first, and not waited for.
bool Executor::find_direct_again(int looks) {
  if (posted_ < peers_.size()) return false;
  for (const bool neighbours : {true, false})
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (peers_[peer].is_neighbour == neighbours && peers_[peer].arrival_due &&
          !await_record(peer, looks))
        return false;
  if (!run_actions(direct_round_.spare())) return false;
  finish_spares();
  for (; ends_heard_ < direct_round_.ends().size(); ++ends_heard_) {
    const DirectRound::Word& word = direct_round_.ends()[ends_heard_];
    const Peer& peer = peers_[word.peer];
    const std::uint64_t number = number_of(word);
    while (peer.endpoint->signalled(word.which) < number) {
      if (peer.is_neighbour || --looks < 0) return false;
      base::pause_core();
    }
  }
  return true;
}

// False as well for a record that is not as the latest one was: it stays for the general way.
bool Executor::await_record(std::size_t peer, int& looks) {
  Peer& p = peers_[peer];
  Frame frame;
  bool waited = false;
  while (!p.endpoint->peek(frame)) {
    if (p.is_neighbour) return false;
    if (run_spare(kPieceBytes / element_bytes_)) continue;
    if (--looks < 0) return false;
    base::pause_core();
    waited = true;
  }
  // Else it may have come while something was done, which is not for nothing then.
  if (waited && is_timed()) all_there_ = flight::ticks();
  const bool alike = frame.tag == static_cast<std::uint32_t>(FrameTag::arrival) &&
                     frame.payload.size() > kArrivalBytes &&
                     std::memcmp(frame.payload.data(), call_.record.data(), kArrivalBytes) == 0;
  if (!alike) [[unlikely]]
    return false;
  return accept_usual(peer, frame.payload);
}

bool Executor::accept_usual(std::size_t peer, std::span<const std::byte> record) {
  Peer& p = peers_[peer];
  const bool known = p.known.is_in(record) && p.known_generation != 0 &&
                     p.known_generation == p.endpoint->import_generation();
  if (!known && !find_usual(peer, record)) [[unlikely]]
    return false;
  const CopyWays copies = decode_copies(record);
  if (copies.now != copies_.now) [[unlikely]]
    return false;
  if (rank_of(peer) == leader() && may_choose()) pull_choice_.heard(copies.next);
  p.endpoint->release();
  p.arrival_due = false;
  return true;
}

// Where the peer's memory lies. False: it is not of the same kinds as the latest one was.
bool Executor::find_usual(std::size_t peer, std::span<const std::byte> record) {
  Peer& p = peers_[peer];
  const std::optional<MemoryReferences> memory = decode_memory(record);
  if (!memory) [[unlikely]]
    return false;
  p.forget_theirs();
  for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    const MemoryReference& reference = (*memory)[static_cast<std::size_t>(buffer)];
    if (reference.addressable()) locate(peer, buffer, reference);
  }
  if (p.theirs != p.usual_theirs) [[unlikely]]
    return false;
  // What is attached is asked for each time.
  if (p.attached == collectives::Addressable{}) p.known.remember(record);
  p.known_generation = p.endpoint->import_generation();
  return true;
}

// Up to that number. False: a peer has failed before what was read of its memory was read, perhaps,
// and nobody must be told that what was made of it is there. That it was read may be told; to ask
// first would fetch the line to which a peer who is through has just written so.
bool Executor::run_actions(std::size_t end) {
  for (; actions_done_ < end; ++actions_done_) {
    const DirectRound::Action& action = direct_round_.actions()[actions_done_];
    const ShortStep& step = short_->steps()[action.step];
    if (step.elements > 0) run_met(step, action.part, 0, step.elements);
    if (!is_copied()) [[unlikely]]
      return false;
    if (action.pulls) end_reading();
    if (action.vouches && any_has_failed()) [[unlikely]]
      return false;
    for (std::uint32_t w = action.words; w < action.words_end; ++w) {
      const DirectRound::Word& word = direct_round_.word(w);
      peers_[word.peer].endpoint->signal(word.which, number_of(word));
    }
  }
  return true;
}

// Goes on with what is done while there is time. False: nothing is left.
bool Executor::run_spare(std::size_t elements_most) {
  if (direct_round_.spare() + spares_done_ == direct_round_.actions().size()) return false;
  const DirectRound::Action& action = direct_round_.actions()[direct_round_.spare() + spares_done_];
  const ShortStep& step = short_->steps()[action.step];
  const std::size_t elements = std::min(elements_most, step.elements - spare_elements_);
  if (elements > 0) run_met(step, action.part, spare_elements_, elements);
  spare_elements_ += elements;
  if (spare_elements_ < step.elements) return true;
  ++spares_done_;
  spare_elements_ = 0;
  return true;
}

bool Executor::spares_are_long() const {
  const std::size_t first = direct_round_.spare();
  if (first == direct_round_.actions().size()) return false;
  const ShortStep& step = short_->steps()[direct_round_.actions()[first].step];
  return step.elements * element_bytes_ > kSpareBytesMost;
}

// What a rank copies for itself last hides how long the words of its peers are under way.
void Executor::finish_spares() {
  while (run_spare(SIZE_MAX)) {
  }
}

// Of the step, these elements of every operand.
void Executor::run_met(const ShortStep& step, DirectRound::Part part, std::size_t first,
                       std::size_t elements) {
  const std::size_t before = first * element_bytes_;
  const auto place = [&](std::uint32_t i) {
    const CallOperand& operand = program_->operand(i);
    std::byte* const memory =
        operand.is_message ? peers_[operand.stream].memory[static_cast<std::size_t>(operand.buffer)]
                           : own_memory(operand.buffer);
    return memory + short_->offset(i) + before;
  };
  forget_sources();
  for (std::uint32_t i = step.sources; i < step.destinations; ++i)
    add_source(program_->operand(i), place(i));
  forget_destinations();
  for (std::uint32_t i = step.destinations; i < step.end; ++i) {
    const CallOperand& operand = program_->operand(i);
    if (operand.is_message && operand.way == Way::pull) continue;  // only offered
    if (part == (operand.is_message ? DirectRound::Part::own : DirectRound::Part::peers)) continue;
    std::byte* const memory = place(i);
    if (step.kind != StepKind::copy || !is_onto_itself(operand, memory))
      add_destination(operand, memory);
  }
  compute(step.kind, step.finish, elements);
}

// Words are numbered through, from when the connection was made.
std::uint64_t Executor::number_of(const DirectRound::Word& word) {
  const Stream& s = stream(kWhole, word.peer);
  return (word.of_received ? s.received_before : s.sent_before) + word.ordinal + 1;
}

// The call as the general way has it when so much has been done. Where a rank has copied for its
// peers and not yet for itself, one of them has failed.
void Executor::resume_direct() {
  program_->begin(false);
  for (Stream* s : call_streams_) s->sent = s->received = {};
  arrivals_due_ = 0;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    Peer& p = peers_[peer];
    arrivals_due_ += p.arrival_due ? 1 : 0;
    if (!p.arrival_sent) p.mine = {};
    if (p.arrival_due) p.forget_theirs();
    if (p.arrival_sent) program_->decide_offers(peer, p.mine);
    p.settled = p.arrival_sent && !p.arrival_due;
    if (p.settled) program_->decide_all(peer, p.mine, p.theirs);
  }
  begin_slices();
  finished_ = false;
  is_again_ = true;
  reads_peers_ = actions_done_ > 0;
  // What is cut for memory that peers can address may have to be cut otherwise. Without the peer,
  // nothing was done but what can be done again.
  cut_undecided_ = arrivals_due_ > 0 && slices_if_direct_ != slices_by_frame_;
  if (cut_undecided_) actions_done_ = spares_done_ = 0;
  const auto note = [this](std::size_t i) {
    const DirectRound::Action& action = direct_round_.actions()[i];
    if (action.part != DirectRound::Part::own) note_done(action.step);  // else with the other part
  };
  for (std::size_t i = 0; i < actions_done_; ++i) note(i);
  for (std::size_t i = 0; i < spares_done_; ++i) note(direct_round_.spare() + i);
  if (any_has_failed()) hear_of_failures();
}

void Executor::note_done(std::uint32_t number) {
  const ShortStep& step = short_->steps()[number];
  short_done_.ran |= std::uint64_t{1} << number;
  for (std::uint32_t i = step.sources; i < step.end; ++i) {
    const CallOperand& operand = program_->operand(i);
    if (!operand.is_message) continue;
    Stream& s = stream(kWhole, operand.stream);
    ++(i < step.destinations ? s.received : s.sent)[at(operand.way)];
  }
}

}  // namespace tutti::runtime

// Lays out a lowered program, and decides the ways of messages.
#include "runtime/call_program.hpp"

#include <algorithm>

#include "collectives/footprint.hpp"

namespace tutti::runtime {
namespace {

using collectives::Addressable;
using collectives::DirectForm;
using collectives::LoweredOperand;
using collectives::LoweredStep;
using collectives::Side;

std::uint32_t narrow(std::size_t value) { return static_cast<std::uint32_t>(value); }

// The same question is answered alike at both ends: each side's bits come from its arrival record.
Way way_of(const CallOperand& operand, const Side& sender, const Side& receiver) {
  if (!collectives::travels_direct(operand.form, operand.buffer, sender, receiver))
    return Way::staged;
  return operand.form == DirectForm::pull ? Way::pull : Way::push;
}

void set_way(CallOperand& operand, Way way, std::array<std::uint32_t, kWayCount>& counts) {
  operand.way = way;
  operand.ready = operand.at_arrival && operand.beside < 0;
  operand.place = counts[static_cast<std::size_t>(way)]++;
}

}  // namespace

CallProgram::CallProgram(std::shared_ptr<const collectives::LoweredProgram> program)
    : program_(std::move(program)) {
  for (const Rank rank : program_->peers) {
    peers_.emplace_back();
    peers_.back().rank = rank;
  }
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    peers_[peer].sends.resize(static_cast<std::size_t>(program_->sends[peer]));
    peers_[peer].receives.resize(static_cast<std::size_t>(program_->receives[peer]));
  }
  for (const LoweredStep& lowered : program_->steps) {
    CallStep step;
    step.kind = lowered.kind;
    step.finish = lowered.finish;
    step.sources = narrow(operands_.size());
    add_operands(lowered.sources, false);
    step.destinations = narrow(operands_.size());
    add_operands(lowered.destinations, true);
    step.end = narrow(operands_.size());
    step.depends = narrow(dependencies_.size());
    dependencies_.insert(dependencies_.end(), lowered.depends.begin(), lowered.depends.end());
    step.depends_end = narrow(dependencies_.size());
    for (std::uint32_t i = step.sources; i < step.end; ++i) {
      const CallOperand& operand = operands_[i];
      if (!operand.is_message) step.in_memory = i;
      const bool sent = i >= step.destinations;
      step.may_land |= operand.is_message && !sent && operand.form == DirectForm::push;
      step.may_offer |= operand.is_message && sent && operand.form == DirectForm::pull;
    }
    step.pieces = lowered.sources[0].count;
    operands_max_ = std::max<std::size_t>(operands_max_, step.end - step.sources);
    steps_.push_back(step);
  }
}

void CallProgram::add_operands(const std::vector<LoweredOperand>& operands, bool sent) {
  for (const LoweredOperand& lowered : operands) {
    CallOperand operand;
    operand.is_message = lowered.kind == Operand::Kind::message;
    operand.mine = lowered.mine;
    operand.buffer = lowered.buffer;
    operand.form = lowered.direct;
    operand.at_arrival = lowered.at_arrival;
    operand.beside = lowered.beside;
    operand.chunk = lowered.chunk;
    if (operand.is_message) {
      operand.stream = narrow(static_cast<std::size_t>(lowered.stream));
      operand.ordinal = operand.place = narrow(static_cast<std::size_t>(lowered.ordinal));
      CallPeer& peer = peers_[operand.stream];
      (sent ? peer.sends : peer.receives)[operand.ordinal] = narrow(operands_.size());
      if (operand.form != DirectForm::none)
        (operand.mine ? peer.ours : peer.theirs).add(operand.buffer);
    }
    operands_.push_back(operand);
  }
}

void CallProgram::begin(bool staged) {
  if (staged && staged_) return;
  staged_ = staged;
  for (CallOperand& operand : operands_) {
    operand.way = staged ? Way::staged : Way::undecided;
    operand.place = operand.ordinal;
  }
  for (CallPeer& peer : peers_) {
    peer.sent = {narrow(peer.sends.size()), 0, 0};
    peer.received = {narrow(peer.receives.size()), 0, 0};
  }
}

void CallProgram::decide_offers(std::size_t peer, const Addressable& mine) {
  CallPeer& p = peers_[peer];
  const Side us{mine, p.ours};
  p.sent = {};
  bool all_known = true;  // of those before
  for (const std::uint32_t send : p.sends) {
    CallOperand& operand = operands_[send];
    if (operand.form == DirectForm::push && us.shares_all()) {
      all_known = false;
      continue;
    }
    const Way way = way_of(operand, us, {});
    if (way == Way::pull || all_known) set_way(operand, way, p.sent);
  }
}

void CallProgram::decide_all(std::size_t peer, const Addressable& mine, const Addressable& theirs) {
  CallPeer& p = peers_[peer];
  const Side us{mine, p.ours};
  const Side them{theirs, p.theirs};
  p.sent = p.received = {};
  for (const std::uint32_t send : p.sends)
    set_way(operands_[send], way_of(operands_[send], us, them), p.sent);
  for (const std::uint32_t receive : p.receives)
    set_way(operands_[receive], way_of(operands_[receive], them, us), p.received);
  decide_ready(p.sends, p.receives);
  decide_ready(p.receives, p.sends);
}

// Those for which that takes the way of a message of the other direction.
void CallProgram::decide_ready(const std::vector<std::uint32_t>& messages,
                               const std::vector<std::uint32_t>& others) {
  for (const std::uint32_t message : messages) {
    CallOperand& operand = operands_[message];
    if (!operand.at_arrival || operand.beside < 0) continue;
    const std::uint32_t other = others[static_cast<std::size_t>(operand.beside)];
    operand.ready = operands_[other].way == Way::pull;
  }
}

std::size_t CallProgram::memory_bytes() const {
  using collectives::bytes_of;
  std::size_t bytes = sizeof(*this) + bytes_of(steps_) + bytes_of(operands_) +
                      bytes_of(dependencies_) + bytes_of(peers_);
  for (const CallPeer& peer : peers_) bytes += bytes_of(peer.sends) + bytes_of(peer.receives);
  return bytes;
}

bool CallProgram::any_staged() const {
  return std::any_of(operands_.begin(), operands_.end(), [](const CallOperand& operand) {
    return operand.is_message && operand.way == Way::staged;
  });
}

}  // namespace tutti::runtime

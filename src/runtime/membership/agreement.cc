// Messages: u8 kind, u32 number of the agreement, body.
#include "runtime/membership/agreement.hpp"

#include <utility>

#include "base/assert.hpp"
#include "transport/bootstrap/bytes.hpp"

namespace tutti::runtime {
namespace {

using transport::ByteReader;
using transport::ByteWriter;

enum Kind : std::uint8_t {
  kAsk = 1,      // coordinator: your contribution, please
  kJoin = 2,     // to the coordinator: my contribution, and the proposal that I hold
  kPropose = 3,  // coordinator: hold this
  kHeld = 4,     // to the coordinator: I do
  kDecided = 5,  // it is the one that you hold from me; or, to a latecomer, the decision itself
};

constexpr std::size_t kBlobMax = 64 * 1024;
constexpr std::size_t kEarlyOfRankMax = 4;  // messages of the next agreement

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

std::string bits_of(const std::vector<bool>& set) {
  std::string bits((set.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < set.size(); ++i)
    if (set[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << i % 8);
  return bits;
}

std::vector<bool> set_of(std::string_view bits, std::size_t size) {
  std::vector<bool> set(size);
  for (std::size_t i = 0; i < size && i / 8 < bits.size(); ++i)
    set[i] = (bits[i / 8] >> i % 8 & 1) != 0;
  return set;
}

void write_decision(ByteWriter& writer, const Decision& decision) {
  writer.number(decision.flags).text(bits_of(decision.lost));
  for (const std::string& blob : decision.blobs) writer.text(blob);
}

bool read_decision(ByteReader& reader, int size, Decision& decision) {
  decision.flags = reader.number<std::uint64_t>();
  const std::string_view bits = reader.text(at(size) / 8 + 1);
  decision.lost = set_of(bits, at(size));
  for (int i = 0; i < size && !reader.failed(); ++i)
    decision.blobs.emplace_back(reader.text(kBlobMax));
  return !reader.failed();
}

}  // namespace

Agreement::Agreement(Rank self, int size)
    : self_(self), size_(size), lost_(at(size)), acknowledged_(at(size)) {}

void Agreement::begin(std::uint64_t flags, std::string blob) {
  TUTTI_ASSERT(!under_way_ && !fresh_, "one agreement at a time");
  TUTTI_ASSERT(blob.size() <= kBlobMax, "a contribution of at most 64 KiB");
  under_way_ = true;
  ++instance_;
  mine_ = Contribution{flags, std::move(blob), std::nullopt};
  joined_.reset();
  asked_ = false;
  contributions_.clear();
  proposed_.reset();
  for (Early& early : std::exchange(early_, {}))
    if (!is_lost(early.from)) take(early.from, early.kind, early.body);
  move();
}

Rank Agreement::coordinator() const {
  Rank rank = 0;
  while (rank != self_ && is_lost(rank)) ++rank;
  return rank;
}

// What can be done now, as coordinator or not.
void Agreement::move() {
  if (!under_way_) return;
  if (coordinates()) {
    ask_all();
    propose_if_complete();
    decide_if_held();
    return;
  }
  const Rank to = coordinator();
  if (joined_ == to) return;
  joined_ = to;
  send(to, kJoin, instance_, encode_join());
}

void Agreement::ask_all() {
  if (std::exchange(asked_, true)) return;
  for (Rank rank = 0; rank < size_; ++rank)
    if (rank != self_ && !is_lost(rank)) send(rank, kAsk, instance_, {});
}

void Agreement::propose_if_complete() {
  if (proposed_) return;
  for (Rank rank = 0; rank < size_; ++rank)
    if (rank != self_ && !is_lost(rank) && contributions_.count(rank) == 0) return;
  const Proposal* held = mine_.held ? &*mine_.held : nullptr;
  for (const auto& [rank, contribution] : contributions_)
    if (contribution.held && (held == nullptr || contribution.held->proposer > held->proposer))
      held = &*contribution.held;
  Proposal proposal{self_, {}};
  if (held != nullptr) {
    proposal.decision = held->decision;
  } else {
    proposal.decision.flags = mine_.flags;
    proposal.decision.lost = lost_;
    proposal.decision.blobs.resize(at(size_));
    proposal.decision.blobs[at(self_)] = mine_.blob;
    for (const auto& [rank, contribution] : contributions_) {
      if (is_lost(rank)) continue;
      proposal.decision.flags &= contribution.flags;
      proposal.decision.blobs[at(rank)] = contribution.blob;
    }
  }
  ByteWriter writer;
  write_decision(writer, proposal.decision);
  for (Rank rank = 0; rank < size_; ++rank)
    if (rank != self_ && !is_lost(rank)) send(rank, kPropose, instance_, writer.bytes());
  acknowledged_.assign(at(size_), false);
  mine_.held = proposal;
  proposed_ = std::move(proposal);
}

void Agreement::decide_if_held() {
  if (!proposed_) return;
  for (Rank rank = 0; rank < size_; ++rank)
    if (rank != self_ && !is_lost(rank) && !acknowledged_[at(rank)]) return;
  for (Rank rank = 0; rank < size_; ++rank)
    if (rank != self_ && !is_lost(rank)) send(rank, kDecided, instance_, {});
  decide(Decision(proposed_->decision));
}

void Agreement::decide(const Decision& decision) {
  decision_ = decision;
  decision_->number = instance_;
  under_way_ = false;
  fresh_ = true;
  for (Rank rank = 0; rank < size_; ++rank)
    if (decision_->lost[at(rank)] && rank != self_) lost_[at(rank)] = true;
}

std::optional<Decision> Agreement::take_decision() {
  if (!std::exchange(fresh_, false)) return std::nullopt;
  return decision_;
}

void Agreement::lost(Rank rank) {
  if (rank == self_ || is_lost(rank)) return;
  lost_[at(rank)] = true;
  move();
}

// A decision is kept until the next, because whoever takes over from a dead coordinator may not
// have it: so nobody is ever more than one agreement ahead.
void Agreement::received(Rank from, std::string_view message) {
  if (is_lost(from)) return;
  ByteReader reader(message);
  const auto kind = reader.number<std::uint8_t>();
  const auto instance = reader.number<std::uint32_t>();
  const std::string_view body = reader.rest();
  if (reader.failed() || kind < kAsk || kind > kDecided) return lost(from);
  if (under_way_ && instance == instance_) return take(from, kind, body);
  if (instance == instance_ + 1 && early_.size() < kEarlyOfRankMax * at(size_)) {
    early_.push_back({from, kind, std::string(body)});
  } else if (decision_ && instance == (under_way_ ? instance_ - 1 : instance_)) {
    if (kind == kAsk || kind == kJoin) answer_late(from, instance);
  } else if (instance > instance_) {
    lost(from);
  }
}

void Agreement::answer_late(Rank to, std::uint32_t instance) {
  ByteWriter writer;
  write_decision(writer, *decision_);
  send(to, kDecided, instance, writer.bytes());
}

void Agreement::take(Rank from, std::uint8_t kind, std::string_view body) {
  if (!under_way_) return;  // an early message may decide it before the next is looked at
  switch (kind) {
    case kAsk:
      // Who asks knows that those before it are lost.
      for (Rank rank = 0; rank < from; ++rank)
        if (rank != self_) lost_[at(rank)] = true;
      break;
    case kJoin:
      take_join(from, body);
      break;
    case kPropose:
      take_proposal(from, body);
      break;
    case kHeld:
      if (proposed_) acknowledged_[at(from)] = true;
      break;
    case kDecided:
      take_decided(from, body);
      break;
  }
  move();
}

void Agreement::merge_lost(std::string_view bits) {
  const std::vector<bool> theirs = set_of(bits, at(size_));
  for (Rank rank = 0; rank < size_; ++rank)
    if (theirs[at(rank)] && rank != self_) lost_[at(rank)] = true;
}

std::string Agreement::encode_join() const {
  ByteWriter writer;
  writer.number(mine_.flags).text(bits_of(lost_)).text(mine_.blob);
  writer.number(static_cast<std::uint8_t>(mine_.held.has_value()));
  if (mine_.held) {
    writer.number(mine_.held->proposer);
    write_decision(writer, mine_.held->decision);
  }
  return writer.bytes();
}

void Agreement::take_join(Rank from, std::string_view body) {
  ByteReader reader(body);
  Contribution contribution;
  contribution.flags = reader.number<std::uint64_t>();
  const std::string_view bits = reader.text(at(size_) / 8 + 1);
  contribution.blob = reader.text(kBlobMax);
  if (reader.number<std::uint8_t>() != 0) {
    Proposal held;
    held.proposer = reader.number<Rank>();
    read_decision(reader, size_, held.decision);
    contribution.held = std::move(held);
  }
  if (!reader.complete()) return lost(from);
  merge_lost(bits);
  contributions_[from] = std::move(contribution);
}

void Agreement::take_proposal(Rank from, std::string_view body) {
  ByteReader reader(body);
  Proposal proposal{from, {}};
  if (!read_decision(reader, size_, proposal.decision) || !reader.complete()) return lost(from);
  mine_.held = std::move(proposal);
  send(from, kHeld, instance_, {});
}

void Agreement::take_decided(Rank from, std::string_view body) {
  if (body.empty()) {
    if (!mine_.held || mine_.held->proposer != from) return lost(from);
    return decide(Decision(mine_.held->decision));
  }
  ByteReader reader(body);
  Decision decision;
  if (!read_decision(reader, size_, decision) || !reader.complete()) return lost(from);
  decide(decision);
  // Those that have joined us wait for our word; the others will ask.
  for (const auto& [rank, contribution] : contributions_)
    if (!is_lost(rank)) answer_late(rank, instance_);
}

std::vector<Rank> Agreement::watched() const {
  std::vector<Rank> ranks;
  if (!under_way_) return ranks;
  if (!coordinates()) return {coordinator()};
  return awaited();
}

std::vector<Rank> Agreement::awaited() const {
  std::vector<Rank> ranks;
  if (!under_way_) return ranks;
  if (!coordinates()) return {coordinator()};
  for (Rank rank = 0; rank < size_; ++rank) {
    if (rank == self_ || is_lost(rank)) continue;
    const bool here = proposed_ ? acknowledged_[at(rank)] : contributions_.count(rank) != 0;
    if (!here) ranks.push_back(rank);
  }
  return ranks;
}

void Agreement::send(Rank to, std::uint8_t kind, std::uint32_t instance, std::string_view body) {
  ByteWriter writer;
  writer.number(kind).number(instance).raw(body);
  outgoing_.push_back({to, writer.bytes()});
}

std::vector<Agreement::Message> Agreement::take_outgoing() { return std::exchange(outgoing_, {}); }

}  // namespace tutti::runtime

// parent_search.cc: see parent_search.hpp.
#include "transport/bootstrap/parent_search.hpp"

#include <algorithm>

#include "transport/bootstrap/ranks.hpp"

namespace tutti::transport {
namespace {

constexpr std::int64_t kLocalPauseMs = 20;  // at most, between two looks at a local name
constexpr std::int64_t kRemotePauseMs = 100;
constexpr int kAssignedTries = 3;

}  // namespace

std::optional<Call> ParentSearch::next(std::int64_t now_ms) {
  if (!start_ms_) start_ms_ = now_ms;
  if (state_ != State::waiting || now_ms < next_ms_) return std::nullopt;
  state_ = State::calling;
  if (assigned_) {
    last_call_ = Call::Where::assigned;
    return Call{last_call_, assigned_->rank, CallPurpose::attach, assigned_->host, assigned_->port};
  }
  const Rank parent = binomial_parent(rank_);
  if (local_names_ && !(last_call_ == Call::Where::local && zero_is_next(now_ms))) {
    last_call_ = Call::Where::local;
    return Call{last_call_, parent, CallPurpose::attach, {}, 0};
  }
  last_call_ = Call::Where::zero;
  const bool is_parent = parent == 0 && !directly_;
  return Call{last_call_, 0, is_parent ? CallPurpose::attach : CallPurpose::introduce, {}, 0};
}

// Rank 0's address is known from the start, so it need not be on this host to be asked at once.
bool ParentSearch::zero_is_next(std::int64_t now_ms) const {
  return binomial_parent(rank_) == 0 || now_ms - *start_ms_ >= patience_ms_;
}

std::optional<std::int64_t> ParentSearch::due_ms() const {
  if (state_ != State::waiting) return std::nullopt;
  return next_ms_;
}

void ParentSearch::failed(const Status& why, std::int64_t now_ms) {
  if (state_ != State::calling) return;
  state_ = State::waiting;
  // Whether a local name exists says nothing about why rank 0 cannot be reached.
  if (last_call_ != Call::Where::local || last_.ok()) last_ = why;
  if (last_call_ == Call::Where::assigned && ++assigned_tries_ >= kAssignedTries) {
    assigned_.reset();
    directly_ = true;
  }
  if (last_call_ != Call::Where::local) return wait(now_ms, kRemotePauseMs);
  if (!zero_is_next(now_ms)) wait(now_ms, kLocalPauseMs);
}

void ParentSearch::wait(std::int64_t now_ms, std::int64_t pause_ms_max) {
  next_ms_ = now_ms + pause_ms_;
  pause_ms_ = std::min(2 * pause_ms_, pause_ms_max);
}

void ParentSearch::assigned(const Parent& parent, std::int64_t now_ms) {
  assigned_ = parent;
  assigned_tries_ = 0;
  state_ = State::waiting;
  next_ms_ = now_ms;
}

}  // namespace tutti::transport

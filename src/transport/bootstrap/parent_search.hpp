// parent_search.hpp: whom a rank calls, and when, to find its parent in the tree.
//
// On one host a parent is found under a name that only ranks of the job can compute, without asking
// anybody. A parent that is not there after a while may be on another host, so rank 0 is asked for
// one (only rank 0 has an address that all know). From then on the local name is not tried any
// more: whoever was introduced has a parent that was introduced before it, everybody else has one
// of a smaller rank, and so no circle can come about.
//
// Knows no connection and no clock; is told the time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/bootstrap/message.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

// A connection to be made.
struct Call {
  enum class Where { local, zero, assigned };
  Where where = Where::local;
  Rank to = 0;
  CallPurpose purpose = CallPurpose::attach;
  std::string host;  // of an assigned parent; numeric
  std::uint16_t port = 0;
};

class ParentSearch {
 public:
  // With local_names, a parent that is not rank 0 is looked for on this host only for so long.
  ParentSearch(Rank rank, bool local_names, std::int64_t patience_ms)
      : rank_(rank), local_names_(local_names), patience_ms_(patience_ms) {}

  // The call to make now; then the search rests until failed() or found().
  std::optional<Call> next(std::int64_t now_ms);
  // When next() will have something to say; nothing while it rests.
  std::optional<std::int64_t> due_ms() const;

  void failed(const Status& why, std::int64_t now_ms);
  void found() { state_ = State::found; }

  // No patience any more: there is news for whoever can be reached.
  void hurry() { patience_ms_ = 0; }

  // This rank said to rank 0 where it listens.
  void introduced() { local_names_ = false; }
  // Rank 0's answer.
  void assigned(const Parent& parent, std::int64_t now_ms);
  // True after an assigned parent could not be reached: rank 0 itself shall be the parent.
  bool directly() const { return directly_; }

  // Why it did not succeed so far.
  const Status& last() const { return last_; }

 private:
  enum class State { waiting, calling, found };
  bool zero_is_next(std::int64_t now_ms) const;
  void wait(std::int64_t now_ms, std::int64_t pause_ms_max);

  Rank rank_;
  bool local_names_;
  std::int64_t patience_ms_;
  State state_ = State::waiting;
  Call::Where last_call_ = Call::Where::zero;
  std::optional<std::int64_t> start_ms_;
  std::int64_t next_ms_ = 0;
  std::int64_t pause_ms_ = 2;
  std::optional<Parent> assigned_;
  int assigned_tries_ = 0;
  bool directly_ = false;
  Status last_;
};

}  // namespace tutti::transport

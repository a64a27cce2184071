// status.hpp: how Tutti reports what the world did to it.
//
// Peers die, wires break, users pass wrong counts: all of that is expected, so it is a value
// (`Status`, `Result<T>`), never an exception. Broken invariants of our own are TUTTI_ASSERT
// (src/base/assert.hpp) and do not pass through here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#pragma GCC visibility push(default)
namespace tutti {

// What kind of failure it was; the text of a Status says which rank, call and value.
enum class StatusCode {
  ok,
  invalid_argument,  // the caller asked for something that cannot be
  unsupported,       // could be, but this build or this transport does not do it
  mismatch,          // ranks made different calls
  timeout,           // a deadline passed; the text names whom we waited for
  peer_lost,         // a rank died or its connection broke
  aborted,           // abort() was called
  revoked,           // revoke() was called, by some rank
  system_error,      // the operating system refused
  corrupt_data,      // bytes from outside did not make sense
  internal,          // a bug of ours that was caught where it could still be reported
};

std::string_view to_string(StatusCode code);

// Success, or a code with a text. Costs two words when ok, and a shared text otherwise: every call
// returns one, seldom one that has something to say.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, int culprit = kUnknownRank)
      : code_(code),
        culprit_(culprit),
        text_(std::make_shared<const std::string>(std::move(message))) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const;

  // The rank with which it began, as far as is known: who died, aborted, or was waited for in vain.
  static constexpr int kUnknownRank = -1;
  int culprit() const { return culprit_; }

  // "peer_lost: rank 3 hung up", or "ok".
  std::string to_string() const;

  // The same failure, culprit and all, with `context` put before its text; ok stays ok.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code_ == b.code_ && a.culprit_ == b.culprit_ && a.message() == b.message();
  }

 private:
  StatusCode code_ = StatusCode::ok;
  int culprit_ = kUnknownRank;
  std::shared_ptr<const std::string> text_;  // null: empty
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return Status(...)` both read naturally.
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) {}

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

  // Requires  ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace tutti
#pragma GCC visibility pop

// The texts of status codes and of failures.
#include "tutti/status.hpp"

namespace tutti {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid_argument";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::mismatch:
      return "mismatch";
    case StatusCode::timeout:
      return "timeout";
    case StatusCode::peer_lost:
      return "peer_lost";
    case StatusCode::aborted:
      return "aborted";
    case StatusCode::revoked:
      return "revoked";
    case StatusCode::system_error:
      return "system_error";
    case StatusCode::corrupt_data:
      return "corrupt_data";
    case StatusCode::internal:
      return "internal";
  }
  return "unknown";
}

const std::string& Status::message() const {
  static const std::string none;
  return text_ == nullptr ? none : *text_;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(tutti::to_string(code_)) + ": " + message();
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message(), culprit_);
}

}  // namespace tutti

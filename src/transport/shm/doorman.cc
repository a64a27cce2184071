// doorman.cc: see doorman.hpp.
#include "transport/shm/doorman.hpp"

namespace tutti::transport::shm {

bool Doorman::admits(const Message& first, pid_t process) {
  const auto at = [this](Rank rank) -> const Address& {
    return addresses_[static_cast<std::size_t>(rank)];
  };
  const bool opens =
      first.kind == MessageKind::hello || (first.kind == MessageKind::ask_board && self_ == 0);
  const bool ours = first.from >= 0 && static_cast<std::size_t>(first.from) < addresses_.size() &&
                    first.from != self_ && first.to == self_ && first.context == context_;
  if (!opens || !ours || !is_process(at(first.from), at(self_), process)) return false;
  if (!proven(first, at(self_).token, secret_)) return false;
  return met_.emplace(first.from, first.kind).second;
}

}  // namespace tutti::transport::shm

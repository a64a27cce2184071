// The mailbox feeds the agreement, and the agreement the mailbox.
#include "runtime/membership/membership.hpp"

#include <utility>

#include "runtime/notice.hpp"

namespace tutti::runtime {
namespace {

// The first byte of a message that is none of the agreement's.
constexpr char kInquiry = 'i';

}  // namespace

Membership::Membership(Transport& transport, int channel)
    : transport_(transport),
      mailbox_(transport, channel),
      agreement_(transport.rank(), transport.size()) {}

void Membership::spread(const Status& failure) {
  if (std::exchange(spread_, true)) return;
  transport_.give_up(failure);
  mailbox_.announce(Signal::failed, encode(Notice::of(failure)));
  const Rank size = transport_.size();
  for (Rank distance = 1; distance < size; distance *= 2) {
    const Rank after = (transport_.rank() + distance) % size;
    const Rank before = (transport_.rank() - distance + size) % size;
    for (const Rank neighbour : {after, before})
      if (neighbour != transport_.rank()) mailbox_.watch(neighbour);
  }
}

std::optional<Status> Membership::hear() {
  mailbox_.answer_callers();
  const auto heard = mailbox_.heard(Signal::failed);
  if (!heard) return std::nullopt;
  return decode_notice(heard->second).told_by(heard->first);
}

void Membership::inquire(Rank whom, std::span<const std::byte> record) {
  std::string message(1, kInquiry);
  message.append(reinterpret_cast<const char*>(record.data()), record.size());
  mailbox_.send(whom, std::move(message));
}

std::optional<std::pair<Rank, std::vector<std::byte>>> Membership::take_inquiry() {
  if (inquiries_.empty()) return std::nullopt;
  auto first = inquiries_.extract(inquiries_.begin());
  return std::pair(first.key(), std::move(first.mapped()));
}

bool Membership::advance() {
  mailbox_.answer_callers();
  for (const Rank rank : agreement_.watched()) mailbox_.watch(rank);
  bool moved = mailbox_.advance(agreement_.under_way());
  while (auto message = mailbox_.take()) {
    const auto& [from, bytes] = *message;
    if (bytes.empty() || bytes.front() != kInquiry) {
      agreement_.received(from, bytes);
      continue;
    }
    const auto* record = reinterpret_cast<const std::byte*>(bytes.data());
    inquiries_[from].assign(record + 1, record + bytes.size());
  }
  for (const Rank rank : mailbox_.take_lost()) agreement_.lost(rank);
  for (Agreement::Message& message : agreement_.take_outgoing()) {
    mailbox_.send(message.to, std::move(message.bytes));
    moved = true;
  }
  return moved;
}

}  // namespace tutti::runtime

// Messages are cut into frames; the tag of a frame says whether more of its message follow.
#include "runtime/membership/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/frame_tag.hpp"

namespace tutti::runtime {

Mailbox::Line& Mailbox::line(Rank rank) {
  const auto [place, fresh] = lines_.try_emplace(rank);
  Line& line = place->second;
  if (!fresh) return line;
  const Result<Endpoint*> endpoint = transport_.endpoint(rank, channel_);
  if (endpoint.ok()) {
    line.endpoint = *endpoint;
    if (announced_) line.endpoint->signal(announced_->first, announced_->second);
  } else {
    lose(rank, line);
  }
  return line;
}

void Mailbox::send(Rank to, std::string message) {
  Line& way = line(to);
  if (!way.lost) way.outgoing.push_back(std::move(message));
}

bool Mailbox::advance(bool seeks_leavers) {
  bool moved = false;
  for (auto& [rank, line] : lines_) {
    if (line.lost) continue;
    moved |= receive(rank, line);
    moved |= flush(line);
    if (!line.lost && finds_lost(line, seeks_leavers)) {
      lose(rank, line);
      moved = true;
    }
  }
  return moved;
}

bool Mailbox::flush(Line& line) {
  bool moved = false;
  while (!line.outgoing.empty()) {
    const std::string& message = line.outgoing.front();
    const std::size_t left = message.size() - line.sent;
    const std::size_t bytes = std::min(left, transport_.frame_bytes_max());
    const std::span<std::byte> room = line.endpoint->reserve(bytes);
    if (room.data() == nullptr) break;
    std::memcpy(room.data(), message.data() + line.sent, bytes);
    const FrameTag tag = bytes == left ? FrameTag::message_end : FrameTag::message_part;
    line.endpoint->commit(static_cast<std::uint32_t>(tag), bytes);
    line.sent += bytes;
    moved = true;
    if (bytes < left) continue;
    line.outgoing.pop_front();
    line.sent = 0;
  }
  return moved;
}

bool Mailbox::receive(Rank rank, Line& line) {
  bool moved = false;
  Frame frame;
  while (!line.lost && line.endpoint->peek(frame)) {
    const auto tag = static_cast<FrameTag>(frame.tag);
    const bool sound = (tag == FrameTag::message_part || tag == FrameTag::message_end) &&
                       line.incoming.size() + frame.payload.size() <= kMessageBytesMax;
    if (!sound) {
      lose(rank, line);
      return true;
    }
    line.incoming.append(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
    line.endpoint->release();
    moved = true;
    if (tag == FrameTag::message_end) arrived_.emplace_back(rank, std::exchange(line.incoming, {}));
  }
  return moved;
}

// Whether a rank closed its communicator shows when one tries to send to it.
bool Mailbox::finds_lost(Line& line, bool seeks_leavers) {
  if (seeks_leavers && line.outgoing.empty()) static_cast<void>(line.endpoint->reserve(1));
  return !line.endpoint->status().ok();
}

void Mailbox::lose(Rank rank, Line& line) {
  line.lost = true;
  line.outgoing.clear();
  line.incoming.clear();
  lost_.push_back(rank);
}

std::optional<std::pair<Rank, std::string>> Mailbox::take() {
  if (arrived_.empty()) return std::nullopt;
  auto message = std::move(arrived_.front());
  arrived_.pop_front();
  return message;
}

std::vector<Rank> Mailbox::take_lost() { return std::exchange(lost_, {}); }

void Mailbox::answer_callers() {
  // One that cannot be answered, because it died since, calls on: the others must not wait for it.
  for (Rank rank = transport_.caller(channel_); rank >= 0; rank = transport_.caller(channel_, rank))
    watch(rank);
}

void Mailbox::announce(Signal which, std::uint64_t word) {
  announced_ = {which, word};
  for (auto& [rank, line] : lines_)
    if (!line.lost) line.endpoint->signal(which, word);
}

std::optional<std::pair<Rank, std::uint64_t>> Mailbox::heard(Signal which) {
  for (auto& [rank, line] : lines_) {
    if (line.endpoint == nullptr) continue;
    if (const std::uint64_t word = line.endpoint->signalled(which); word != 0)
      return std::pair(rank, word);
  }
  return std::nullopt;
}

}  // namespace tutti::runtime

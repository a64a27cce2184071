// proxy.cc: see proxy.hpp. Words are stored with release and loaded with acquire, as kernels do: a
// number is stored after what it tells of.
#include "runtime/gpu/host/proxy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

enum class FrameKind : std::uint32_t { message = 1, progress, notice, farewell };

constexpr std::uint32_t kKindBits = 8;
constexpr int kFramesAtOnce = 64;  // from one peer, before another one is looked after
constexpr int kPollsPerLook = 16;  // at whether a quiet peer is there

constexpr std::uint32_t tag_of(FrameKind kind, std::uint32_t channel) {
  return static_cast<std::uint32_t>(kind) | channel << kKindBits;
}

// Before the payload of a message.
struct MessageHead {
  std::uint64_t number = 0;  // from 1
  std::uint64_t signature = 0;
};

struct Progress {
  std::uint64_t entered = 0;
  std::uint64_t freed = 0;
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
T read(std::span<const std::byte> payload) {
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

std::uint64_t load(std::uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

Status nonsense(std::string text) { return Status(StatusCode::corrupt_data, std::move(text)); }

bool is_lent(const LentPlace& place) { return place.region != 0; }

// So many bytes of it.
LentPlace part_of(const LentPlace& place, std::size_t at, std::size_t bytes) {
  return {place.region, place.offset + at, bytes};
}

Status check_size(std::span<const std::byte> payload, std::size_t bytes, const char* what) {
  if (payload.size() == bytes) return Status();
  return nonsense(fmt::format("a {} of {} bytes, which has {}", what, payload.size(), bytes));
}

}  // namespace

Result<Proxy> Proxy::make(Transport& transport, const ControlShape& shape,
                          std::span<const ProxyLink> links, Flush flush) {
  const std::size_t frame_bytes = sizeof(MessageHead) + shape.slot_bytes;
  const bool all_lent = !links.empty() && std::all_of(links.begin(), links.end(), [](auto& link) {
    return is_lent(link.lent_inbox) && is_lent(link.lent_outbox);
  });
  if (!all_lent && frame_bytes > transport.frame_bytes_max())
    return Status(StatusCode::unsupported,
                  fmt::format("messages of {} bytes need frames of {}, and {} carries at most {}; "
                              "use smaller slots",
                              shape.slot_bytes, frame_bytes, transport.traits().name,
                              transport.frame_bytes_max()));
  Proxy proxy(transport, shape, std::move(flush));
  for (const ProxyLink& link : links) {
    const auto endpoint = transport.endpoint(link.peer, 0);
    TUTTI_TRY(endpoint);
    Link& made = proxy.links_.emplace_back();
    made.at = link;
    made.endpoint = *endpoint;
    made.channels.resize(shape.channels);
    for (Channel& channel : made.channels) {
      channel.read_at.resize(shape.slots);
      channel.fetched_at.resize(shape.slots);
    }
  }
  return proxy;
}

Mailbox& Proxy::told_by(const Link& link, std::uint32_t channel) const {
  return *reinterpret_cast<Mailbox*>(link.at.inbox + shape_.mailbox_at(channel));
}

Mailbox& Proxy::told_to(const Link& link, std::uint32_t channel) const {
  return *reinterpret_cast<Mailbox*>(link.at.outbox + shape_.mailbox_at(channel));
}

std::vector<std::uint64_t> Proxy::take_notices() { return std::exchange(notices_, {}); }

bool Proxy::has_told_all() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const Link& link) { return link.farewell_told || link.is_over; }) &&
         transport_->delivered();
}

bool Proxy::has_left(Rank peer) const {
  return std::all_of(links_.begin(), links_.end(), [&](const Link& link) {
    return link.at.peer != peer || link.has_left || link.is_over;
  });
}

// A transport's failure is that of one of its connections, which say so themselves.
bool Proxy::poll() {
  const auto polled = transport_->poll();
  bool moved = polled.ok() && *polled;
  for (Link& link : links_)
    if (!link.is_over) moved = serve(link) || moved;
  return moved;
}

// Frames first: those that came before a connection ended say how it ended.
bool Proxy::serve(Link& link) {
  bool received = receive(link);
  received = land(link) || received;
  received = release_slots(link) || received;
  if (const Status status = link.endpoint->status(); !status.ok() && !link.is_over) {
    lose(link, status);
    return true;
  }
  const bool moved = !link.is_over && (tell(link) || received);
  if (!moved && ++link.quiet_polls % kPollsPerLook == 0) look_whether_it_is_there(link);
  return moved;
}

// A transport takes it for no failure that a peer has closed its side, as long as nothing is to be
// sent there; but kernels wait for one that has not said farewell.
void Proxy::look_whether_it_is_there(Link& link) {
  if (!link.has_left) static_cast<void>(link.endpoint->reserve(0));
}

// No news of a peer that has said farewell and of which nothing is missing, or why it fails.
void Proxy::lose(Link& link, const Status& why) {
  link.is_over = true;
  if ((link.has_left && !awaits_payloads(link)) || link.notice_heard) return;
  notices_.push_back(make_notice(Why::peer_failed, static_cast<std::uint32_t>(link.at.peer) + 1));
  if (failure_.ok())
    failure_ =
        Status(why.code(), fmt::format("rank {}: {}", link.at.peer, why.message()), link.at.peer);
}

// ---- What this rank tells ----

bool Proxy::tell(Link& link) {
  if (link.farewell_told) return false;
  bool moved = tell_notice(link);
  for (std::uint32_t channel = 0; channel < shape_.channels && !link.is_over; ++channel) {
    moved = tell_progress(link, channel) || moved;
    moved = tell_messages(link, channel) || moved;
  }
  return !link.is_over && ((leaving_ && tell_farewell(link)) || moved);
}

bool Proxy::tell_notice(Link& link) {
  if (link.notice_told) return false;
  const std::uint64_t notice = load(*link.at.notice);
  if (notice == 0) return false;
  link.notice_told = link.endpoint->send(tag_of(FrameKind::notice, 0), {}, bytes_of(notice));
  return link.notice_told;
}

bool Proxy::tell_progress(Link& link, std::uint32_t channel) {
  Channel& state = link.channels[channel];
  Mailbox& mailbox = told_to(link, channel);
  const Progress progress{load(mailbox.entered), load(mailbox.freed)};
  if (progress.entered == state.entered_told && progress.freed == state.freed_told) return false;
  if (!link.endpoint->send(tag_of(FrameKind::progress, channel), {}, bytes_of(progress)))
    return false;
  state.entered_told = progress.entered;
  state.freed_told = progress.freed;
  return true;
}

bool Proxy::tell_messages(Link& link, std::uint32_t channel) {
  Channel& state = link.channels[channel];
  const std::uint64_t filled = load(told_to(link, channel).filled);
  bool moved = false;
  for (; state.carried < filled; ++state.carried) {
    const auto& header = *reinterpret_cast<const SlotHeader*>(
        link.at.outbox + shape_.header_at(channel, state.carried));
    if (header.bytes > shape_.slot_bytes) {
      lose(link, Status(StatusCode::internal,
                        fmt::format("channel {}: message {} to it says that it has {} bytes, in a "
                                    "slot of {}",
                                    channel, state.carried + 1, header.bytes, shape_.slot_bytes)));
      return true;
    }
    if (!send_message(link, channel, header)) break;
    moved = true;
  }
  return moved;
}

bool Proxy::send_message(Link& link, std::uint32_t channel, const SlotHeader& header) {
  Channel& state = link.channels[channel];
  const MessageHead head{state.carried + 1, header.signature};
  const std::uint32_t tag = tag_of(FrameKind::message, channel);
  const std::size_t at = shape_.payload_at(channel, state.carried);
  std::uint64_t& read_at = state.read_at[state.carried % shape_.slots];
  if (is_lent(link.at.lent_outbox) && header.bytes > 0) {
    static_assert(sizeof head <= kLentHeadBytesMax);
    const LentPlace body = part_of(link.at.lent_outbox, at, header.bytes);
    if (!link.endpoint->send_lent(tag, bytes_of(head), body)) return false;
    read_at = ++link.lent_frames;
    return true;
  }
  read_at = 0;
  const auto payload = header.bytes > 0
                           ? std::span<const std::byte>(link.at.outbox_payloads + at, header.bytes)
                           : std::span<const std::byte>();
  return link.endpoint->send(tag, bytes_of(head), payload);
}

// Kernels are told of the slots that both the peer and the transport have read.
bool Proxy::release_slots(Link& link) {
  const std::uint64_t read = link.lent_frames > 0 ? link.endpoint->lent_read() : 0;
  bool moved = false;
  for (std::uint32_t channel = 0; channel < shape_.channels; ++channel) {
    Channel& state = link.channels[channel];
    while (state.released < state.carried && state.read_at[state.released % shape_.slots] <= read)
      ++state.released;
    const std::uint64_t freed = std::min(state.freed_seen, state.released);
    if (freed == state.freed) continue;
    state.freed = freed;
    store(told_by(link, channel).freed, freed);
    moved = true;
  }
  return moved;
}

// Requires  leaving_. Only behind everything else.
bool Proxy::tell_farewell(Link& link) {
  if (!link.notice_told && load(*link.at.notice) != 0) return false;
  for (std::uint32_t channel = 0; channel < shape_.channels; ++channel) {
    const Channel& state = link.channels[channel];
    Mailbox& mailbox = told_to(link, channel);
    if (state.carried != load(mailbox.filled) || state.freed_told != load(mailbox.freed) ||
        state.entered_told != load(mailbox.entered))
      return false;
  }
  link.farewell_told = link.endpoint->send(tag_of(FrameKind::farewell, 0), {}, {});
  return link.farewell_told;
}

// ---- What it is told ----

bool Proxy::receive(Link& link) {
  Frame frame;
  bool moved = false;
  for (int frames = 0; frames < kFramesAtOnce && link.endpoint->peek(frame); ++frames) {
    const Result<bool> taken = take(link, frame);
    if (taken.ok() && !*taken) break;
    moved = true;
    link.endpoint->release();
    if (taken.ok()) continue;
    // A farewell that came before no longer counts: this was no rank that had left.
    link.has_left = false;
    lose(link, taken.status());
    break;
  }
  return moved;
}

// Kernels are told of what is there, once they can see it.
bool Proxy::land(Link& link) {
  if (link.is_over) return false;
  const std::uint64_t fetched = link.fetches > 0 ? link.endpoint->fetched() : 0;
  bool has_landed = false;
  bool by_itself = false;
  for (Channel& state : link.channels)
    for (std::uint64_t& landed = state.landed; landed < state.received; ++landed) {
      const std::uint64_t at = state.fetched_at[landed % shape_.slots];
      if (at > fetched) break;
      has_landed = true;
      by_itself = by_itself || at > 0;
    }
  if (!has_landed) return false;
  if (by_itself && flush_)
    if (const Status flushed = flush_(); !flushed.ok()) {
      link.has_left = false;  // or not with all that it told
      lose(link, flushed);
      return true;
    }
  for (std::uint32_t channel = 0; channel < shape_.channels; ++channel)
    store(told_by(link, channel).filled, link.channels[channel].landed);
  return true;
}

bool Proxy::awaits_payloads(const Link& link) {
  return std::any_of(link.channels.begin(), link.channels.end(),
                     [](const Channel& state) { return state.landed < state.received; });
}

// False: it cannot be taken yet.
Result<bool> Proxy::take(Link& link, const Frame& frame) {
  const std::uint32_t kind = frame.tag & ((1U << kKindBits) - 1);
  const std::uint32_t channel = frame.tag >> kKindBits;
  if (link.has_left) return nonsense(fmt::format("a frame of tag {:#x} after farewell", frame.tag));
  if (channel >= shape_.channels)
    return nonsense(fmt::format("channel {} of {}", channel, shape_.channels));
  if (static_cast<FrameKind>(kind) == FrameKind::message) return take_message(link, channel, frame);
  if (frame.lent_bytes > 0)
    return nonsense(
        fmt::format("a frame of tag {:#x} with {} lent bytes", frame.tag, frame.lent_bytes));
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::progress:
      TUTTI_TRY(take_progress(link, channel, frame.payload));
      return true;
    case FrameKind::notice:
      TUTTI_TRY(take_notice(link, frame.payload));
      return true;
    case FrameKind::farewell:
      TUTTI_TRY(check_size(frame.payload, 0, "farewell"));
      link.has_left = true;
      return true;
    case FrameKind::message:
      break;
  }
  return nonsense(fmt::format("a frame of tag {:#x}", frame.tag));
}

Status Proxy::check_message(const Link& link, std::uint32_t channel, const Frame& frame) const {
  const Channel& state = link.channels[channel];
  const std::span payload = frame.payload;
  if (frame.lent_bytes > shape_.slot_bytes)
    return nonsense(fmt::format("channel {}: a message of {} lent bytes, for slots of {}", channel,
                                frame.lent_bytes, shape_.slot_bytes));
  const std::size_t bytes = payload.size() + frame.lent_bytes;
  if (payload.size() < sizeof(MessageHead) || bytes - sizeof(MessageHead) > shape_.slot_bytes)
    return nonsense(fmt::format("channel {}: a message of {} bytes, for slots of {}", channel,
                                bytes, shape_.slot_bytes));
  const bool has_content = payload.size() > sizeof(MessageHead);
  if (is_lent(link.at.lent_inbox) ? has_content : frame.lent_bytes > 0)
    return nonsense(
        fmt::format("channel {}: a message of {} bytes, {} of which are lent, is not "
                    "what was agreed on",
                    channel, bytes, frame.lent_bytes));
  const auto head = read<MessageHead>(payload);
  if (head.number != state.received + 1)
    return nonsense(
        fmt::format("channel {}: message {} after {}", channel, head.number, state.received));
  if (head.number > state.freed_told + shape_.slots)
    return nonsense(fmt::format("channel {}: message {} while {} have been read, of {} slots",
                                channel, head.number, state.freed_told, shape_.slots));
  return Status();
}

Result<bool> Proxy::take_message(Link& link, std::uint32_t channel, const Frame& frame) {
  TUTTI_TRY(check_message(link, channel, frame));
  Channel& state = link.channels[channel];
  const std::size_t at = shape_.payload_at(channel, state.received);
  const auto content = frame.payload.subspan(sizeof(MessageHead));
  std::uint64_t& fetched_at = state.fetched_at[state.received % shape_.slots];
  if (frame.lent_bytes > 0) {
    if (!link.endpoint->fetch(part_of(link.at.lent_inbox, at, frame.lent_bytes))) return false;
    fetched_at = ++link.fetches;
  } else {
    fetched_at = 0;
    if (!content.empty()) std::copy(content.begin(), content.end(), link.at.inbox_payloads + at);
  }
  *reinterpret_cast<SlotHeader*>(link.at.inbox + shape_.header_at(channel, state.received)) = {
      read<MessageHead>(frame.payload).signature, content.size() + frame.lent_bytes};
  ++state.received;
  return true;
}

Status Proxy::take_progress(Link& link, std::uint32_t channel, std::span<const std::byte> payload) {
  TUTTI_TRY(check_size(payload, sizeof(Progress), "word of progress"));
  Channel& state = link.channels[channel];
  const auto progress = read<Progress>(payload);
  if (progress.freed < state.freed_seen || progress.freed > state.carried)
    return nonsense(fmt::format("channel {}: it has read {} messages, after {}, of {}", channel,
                                progress.freed, state.freed_seen, state.carried));
  state.freed_seen = progress.freed;
  Mailbox& mailbox = told_by(link, channel);
  store(mailbox.entered, progress.entered);
  return Status();
}

Status Proxy::take_notice(Link& link, std::span<const std::byte> payload) {
  TUTTI_TRY(check_size(payload, sizeof(std::uint64_t), "notice"));
  const auto notice = read<std::uint64_t>(payload);
  const std::uint64_t why = notice >> 32;
  const auto culprit = static_cast<std::uint32_t>(notice);
  if (why == 0 || why > static_cast<std::uint64_t>(Why::peer_failed) || culprit > shape_.ranks)
    return nonsense(fmt::format("a notice of {:#x}, with {} ranks", notice, shape_.ranks));
  notices_.push_back(notice);
  link.notice_heard = true;
  return Status();
}

}  // namespace tutti::runtime::gpu

// What a rank of another host sends to the proxy of a device world: one that has joined the job.
//
// Beyond not crashing: nothing is stored but in the inbox, never more messages than there is room
// for, each within its slot; whoever sends what makes no sense is lost, and then nothing more of it
// is believed. Payloads are copied, or lent: then nothing is fetched but into their slots, nor told
// of before it is there.
#include <algorithm>
#include <span>
#include <vector>

#include "fuzz.hpp"
#include "gpu_world/lending_transport.hpp"
#include "runtime/gpu/host/proxy.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::runtime::gpu;

constexpr std::size_t kFrameBytes = 128;

enum class Act : std::uint8_t { send, read, fill, poll, move, count };

ControlShape small_shape() {
  ControlShape shape;
  shape.ranks = 2;
  shape.channels = 2;
  shape.slots = 2;
  shape.slot_bytes = 32;
  return shape;
}

// The side that is told: the memory of its kernels, with guards.
class Told {
 public:
  explicit Told(bool lent)
      : lent_(lent),
        memory_((3 * ControlShape::kNoticeBytes + 2 * shape_.inbox_bytes()) / sizeof(Line)),
        payloads_(new std::byte[2 * shape_.payload_bytes()](), std::default_delete<std::byte[]>()),
        region_(*transport_.lend({payloads_, 2 * shape_.payload_bytes(), MemoryKind::cuda})),
        proxy_(*Proxy::make(transport_, shape_, std::vector<ProxyLink>{link()})) {}

  void send(std::uint32_t tag, std::string_view payload, std::size_t lent_bytes) {
    const auto bytes = std::as_bytes(std::span(payload));
    in_.frames.push_back({tag, {bytes.begin(), bytes.end()}, nullptr, lent_bytes});
  }
  // What was fetched first is there.
  void move() {
    if (!in_.fetches.empty()) in_.move_one();
  }
  void read(std::uint32_t channel) {
    Mailbox& ours = mailbox(link().outbox, channel);
    if (mailbox(link().inbox, channel).filled == ours.freed) return;
    const std::byte* const slot = link().inbox + shape_.header_at(channel, ours.freed);
    TUTTI_ASSERT(reinterpret_cast<const SlotHeader*>(slot)->bytes <= shape_.slot_bytes,
                 "a message fits its slot");
    ++ours.freed;
  }
  void fill(std::uint32_t channel) {
    Mailbox& ours = mailbox(link().outbox, channel);
    if (ours.filled == mailbox(link().inbox, channel).freed + shape_.slots) return;
    std::byte* const slot = link().outbox + shape_.header_at(channel, ours.filled);
    *reinterpret_cast<SlotHeader*>(slot) = {7, 16};
    ++ours.filled;
  }
  void poll() {
    const std::vector<Line> before = memory_;
    const bool was_lost = !proxy_.failure().ok();
    proxy_.poll();
    const std::size_t inbox = 2 * ControlShape::kNoticeBytes / sizeof(Line);
    const std::size_t end = inbox + shape_.inbox_bytes() / sizeof(Line);
    for (std::size_t line = 0; line < memory_.size(); ++line)
      TUTTI_ASSERT((!was_lost && line >= inbox && line < end) || before[line] == memory_[line],
                   "nothing is stored but in the inbox of one that is believed");
    for (std::uint32_t channel = 0; channel < shape_.channels; ++channel) {
      const Mailbox& theirs = mailbox(link().inbox, channel);
      const Mailbox& ours = mailbox(link().outbox, channel);
      TUTTI_ASSERT(theirs.filled >= ours.freed && theirs.filled <= ours.freed + shape_.slots,
                   "there is room for what has come");
      TUTTI_ASSERT(theirs.freed <= ours.filled, "only what was sent can have been read");
    }
    proxy_.take_notices();
    out_.lent_read += static_cast<std::uint64_t>(
        std::count_if(out_.frames.begin(), out_.frames.end(),
                      [](const LendingWire::Sent& sent) { return sent.lent_bytes > 0; }));
    out_.frames.clear();
    check_fetches(was_lost);
  }

 private:
  struct alignas(128) Line {
    std::byte bytes[128] = {};
    bool operator==(const Line& other) const {
      return std::equal(std::begin(bytes), std::end(bytes), std::begin(other.bytes));
    }
  };

  void check_fetches(bool was_lost) {
    TUTTI_ASSERT(lent_ || in_.fetches.empty(), "nothing is fetched where payloads are copied");
    TUTTI_ASSERT(!was_lost || in_.fetches.size() <= fetches_, "nor from one that is lost");
    fetches_ = in_.fetches.size();
    for (const LendingWire::Fetch& fetch : in_.fetches)
      TUTTI_ASSERT(
          fetch.to >= payloads_.get() &&
              fetch.to + fetch.frame.lent_bytes <= payloads_.get() + shape_.payload_bytes() &&
              fetch.frame.lent_bytes <= shape_.slot_bytes,
          "what is fetched fits its slot");
  }
  ProxyLink link() {
    std::byte* const notice = memory_.front().bytes + ControlShape::kNoticeBytes;
    std::byte* const inbox = notice + ControlShape::kNoticeBytes;
    std::byte* const outbox = inbox + shape_.inbox_bytes();
    return {0,
            inbox,
            outbox,
            reinterpret_cast<std::uint64_t*>(notice),
            inbox + shape_.payloads_at(),
            outbox + shape_.payloads_at(),
            {lent_ ? region_ : 0, 0, shape_.payload_bytes()},
            {lent_ ? region_ : 0, shape_.payload_bytes(), shape_.payload_bytes()}};
  }
  Mailbox& mailbox(std::byte* box, std::uint32_t channel) {
    return *reinterpret_cast<Mailbox*>(box + shape_.mailbox_at(channel));
  }

  const bool lent_;
  const ControlShape shape_ = small_shape();
  std::vector<Line> memory_;
  std::shared_ptr<std::byte> payloads_;
  LendingWire out_;
  LendingWire in_;
  LendingTransport transport_{1, out_, in_};
  const std::uint32_t region_;
  Proxy proxy_;
  std::size_t fetches_ = 0;
};

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Decisions decisions(input);
  Told told(decisions.number<std::uint8_t>() % 2 == 1);
  while (!decisions.done()) {
    const auto act =
        static_cast<Act>(decisions.number<std::uint8_t>() % static_cast<std::uint8_t>(Act::count));
    const std::uint32_t channel = act == Act::read || act == Act::fill
                                      ? decisions.number<std::uint8_t>() % 2U
                                      : decisions.number<std::uint8_t>();
    switch (act) {
      case Act::send: {
        const auto kind = decisions.number<std::uint8_t>();
        const auto lent_bytes = decisions.number<std::uint8_t>();
        // The last one is as long as nothing can be.
        told.send(kind | channel << 8, decisions.text().substr(0, kFrameBytes),
                  lent_bytes == 255 ? ~std::size_t{0} : lent_bytes);
        break;
      }
      case Act::move:
        told.move();
        break;
      case Act::read:
        told.read(channel);
        break;
      case Act::fill:
        told.fill(channel);
        break;
      case Act::poll:
      case Act::count:
        told.poll();
        break;
    }
  }
  told.poll();
}

std::vector<std::string> seeds() {
  const auto words = [](std::uint64_t first, std::uint64_t second) {
    return std::string(Script().number(first).number(second));
  };
  const auto send = [](Script script, int channel, int kind, int lent_bytes,
                       const std::string& text) {
    return script.byte(0).byte(channel).byte(kind).byte(lent_bytes).text(text);
  };
  constexpr int kRead = 1;
  constexpr int kFill = 2;
  constexpr int kPoll = 3;
  constexpr int kMove = 4;
  const auto act = [](Script script, int what, int channel) {
    return script.byte(what).byte(channel);
  };
  const Script copied = Script().byte(0);
  const Script lent = Script().byte(1);
  Script messages = send(copied, 0, 1, 0, words(1, 9) + std::string(16, 'x'));
  messages = act(send(messages, 0, 1, 0, words(2, 9)), kPoll, 0);
  messages = act(act(messages, kRead, 0), kPoll, 0);
  messages = send(messages, 0, 1, 0, words(3, 9) + std::string(32, 'y'));
  Script fetched = act(send(lent, 0, 1, 16, words(1, 9)), kPoll, 0);
  fetched = act(act(act(fetched, kMove, 0), kPoll, 0), kRead, 0);
  fetched = send(send(fetched, 0, 1, 32, words(2, 9)), 1, 1, 32, words(1, 9));
  fetched = act(act(act(fetched, kPoll, 0), kMove, 0), kPoll, 0);
  Script filled = act(act(act(copied, kFill, 1), kFill, 1), kPoll, 0);
  filled = act(act(send(filled, 1, 2, 0, words(5, 1)), kPoll, 0), kFill, 1);
  filled = send(filled, 1, 2, 0, words(5, 2));
  Script notice = send(copied, 0, 3, 0, std::string(Script().number(make_notice(Why::timeout, 1))));
  notice = send(notice, 0, 4, 0, "");
  return {messages,
          fetched,
          filled,
          notice,
          send(copied, 1, 1, 0, words(1, 9) + std::string(40, 'z')),
          send(lent, 0, 1, 255, words(1, 9)),
          send(copied, 0, 1, 16, words(1, 9))};
}

}  // namespace tutti::fuzz

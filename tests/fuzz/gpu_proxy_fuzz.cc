// What a rank of another host sends to the proxy of a device world: one that has joined the job.
//
// Beyond not crashing: nothing is stored but in the inbox, never more messages than there is room
// for, each within its slot; whoever sends what makes no sense is lost, and then nothing more of it
// is believed.
#include <algorithm>
#include <span>
#include <vector>

#include "fuzz.hpp"
#include "runtime/gpu/host/proxy.hpp"
#include "transport/memory/transport.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::runtime::gpu;

constexpr std::size_t kFrameBytes = 128;

enum class Act : std::uint8_t { send, read, fill, poll, count };

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
  Told()
      : memory_((3 * ControlShape::kNoticeBytes + 2 * shape_.inbox_bytes()) / sizeof(Line)),
        forger_(transport::make_memory_transport(world_, 0)),
        transport_(transport::make_memory_transport(world_, 1)),
        proxy_(*Proxy::make(*transport_, shape_, std::vector<ProxyLink>{link()})),
        endpoint_(*forger_->endpoint(1, 0)) {}

  void send(std::uint32_t tag, std::string_view payload) {
    endpoint_->send(tag, {}, std::as_bytes(std::span(payload)));
  }
  void read(std::uint32_t channel) {
    Mailbox& ours = mailbox(link().outbox, channel);
    if (mailbox(link().inbox, channel).filled == ours.freed) return;
    const std::byte* const slot = link().inbox + shape_.slot_at(channel, ours.freed);
    TUTTI_ASSERT(reinterpret_cast<const SlotHeader*>(slot)->bytes <= shape_.slot_bytes,
                 "a message fits its slot");
    ++ours.freed;
  }
  void fill(std::uint32_t channel) {
    Mailbox& ours = mailbox(link().outbox, channel);
    if (ours.filled == mailbox(link().inbox, channel).freed + shape_.slots) return;
    std::byte* const slot = link().outbox + shape_.slot_at(channel, ours.filled);
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
    Frame frame;
    while (endpoint_->peek(frame)) endpoint_->release();
  }

 private:
  struct alignas(128) Line {
    std::byte bytes[128] = {};
    bool operator==(const Line& other) const {
      return std::equal(std::begin(bytes), std::end(bytes), std::begin(other.bytes));
    }
  };

  static std::shared_ptr<transport::MemoryWorld> make_world() {
    transport::TransportOptions options;
    options.size = 2;
    options.frame_bytes_max = kFrameBytes;
    options.queue_bytes = 512;
    return transport::MemoryWorld::make(options);
  }
  ProxyLink link() {
    std::byte* const notice = memory_.front().bytes + ControlShape::kNoticeBytes;
    std::byte* const inbox = notice + ControlShape::kNoticeBytes;
    return {0, inbox, inbox + shape_.inbox_bytes(), reinterpret_cast<std::uint64_t*>(notice)};
  }
  Mailbox& mailbox(std::byte* box, std::uint32_t channel) {
    return *reinterpret_cast<Mailbox*>(box + shape_.mailbox_at(channel));
  }

  const ControlShape shape_ = small_shape();
  std::vector<Line> memory_;
  std::shared_ptr<transport::MemoryWorld> world_ = make_world();
  std::unique_ptr<Transport> forger_;
  std::unique_ptr<Transport> transport_;
  Proxy proxy_;
  Endpoint* endpoint_;
};

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Told told;
  Decisions decisions(input);
  while (!decisions.done()) {
    const auto act =
        static_cast<Act>(decisions.number<std::uint8_t>() % static_cast<std::uint8_t>(Act::count));
    const std::uint32_t channel = act == Act::read || act == Act::fill
                                      ? decisions.number<std::uint8_t>() % 2U
                                      : decisions.number<std::uint8_t>();
    switch (act) {
      case Act::send: {
        const auto kind = decisions.number<std::uint8_t>();
        told.send(kind | channel << 8, decisions.text().substr(0, kFrameBytes));
        break;
      }
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
  constexpr int kSend = 0;
  constexpr int kRead = 1;
  constexpr int kFill = 2;
  constexpr int kPoll = 3;
  return {
      Script()
          .byte(kSend)
          .byte(0)
          .byte(1)
          .text(words(1, 9) + std::string(16, 'x'))
          .byte(kSend)
          .byte(0)
          .byte(1)
          .text(words(2, 9))
          .byte(kPoll)
          .byte(0)
          .byte(kRead)
          .byte(0)
          .byte(kPoll)
          .byte(0)
          .byte(kSend)
          .byte(0)
          .byte(1)
          .text(words(3, 9) + std::string(32, 'y')),
      Script()
          .byte(kFill)
          .byte(1)
          .byte(kFill)
          .byte(1)
          .byte(kPoll)
          .byte(0)
          .byte(kSend)
          .byte(1)
          .byte(2)
          .text(words(5, 1))
          .byte(kPoll)
          .byte(0)
          .byte(kFill)
          .byte(1)
          .byte(kSend)
          .byte(1)
          .byte(2)
          .text(words(5, 2)),
      Script()
          .byte(kSend)
          .byte(0)
          .byte(3)
          .text(std::string(Script().number(make_notice(Why::timeout, 1))))
          .byte(kSend)
          .byte(0)
          .byte(4)
          .text(""),
      Script().byte(kSend).byte(1).byte(1).text(words(1, 9) + std::string(40, 'z')),
  };
}

}  // namespace tutti::fuzz

// A queue in memory that a peer gone mad shares: between any two of our calls it writes anything
// anywhere. Inputs are scripts of our calls and of its writes.
//
// Beyond not crashing: what peek() shows lies inside the queue; nonsense leads to corrupt() or to
// no frame, never to a frame that is too long; what we reserve lies inside the queue or is our own.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "fuzz.hpp"
#include "transport/fifo/queue.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport::fifo;

constexpr std::align_val_t kPage{4096};
constexpr std::size_t kFrameMax = 8192;
constexpr std::size_t kStepsMax = 128;

struct Free {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
};

const Layout& layout() {
  static const Layout made = Layout::of(kFrameMax, 2 * kFrameMax);
  return made;
}

// Memory of exactly the queue's size, so that the address sanitizer sees any step outside; the
// same for all inputs, because clearing it costs less than having it made.
std::byte* memory() {
  static const std::unique_ptr<std::byte, Free> made(
      static_cast<std::byte*>(::operator new(layout().bytes(), kPage)));
  return made.get();
}

// What frames may lie in besides, and what is lent to the peer; of exactly their sizes, too.
std::span<std::byte> outbox() {
  static std::vector<std::byte> made(kFrameMax + 1024);
  return made;
}
std::span<std::byte> lent() {
  static std::vector<std::byte> made(kFrameMax);
  return made;
}

bool inside(std::span<const std::byte> all, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  return at >= all.data() && bytes <= all.size() && at + bytes <= all.data() + all.size();
}
bool inside(const void* data, std::size_t bytes) {
  return inside({memory(), layout().bytes()}, data, bytes);
}

Cell& cell(std::size_t index) {
  return *reinterpret_cast<Cell*>(memory() + layout().cells_offset() +
                                  offset_of(index % kCellCount));
}

enum Call {
  peek,
  release,
  news,
  signalled,
  reserve,
  commit,
  signal,
  room,
  poke,
  poke_cell,
  lend,
  offer,
  borrow
};
constexpr int kCalls = 13;

class World {
 public:
  World() {
    std::memset(memory(), 0, layout().payloads_offset());
    initialize(memory(), layout());
    consumer_.attach(memory(), layout());
    consumer_.attach_outbox(outbox().data(), outbox().size());
    producer_.attach(memory(), layout());
  }

  void call(int what, Decisions& decisions) {
    switch (what) {
      case peek:
        return show();
      case release:
        return release_shown();
      case news:
        return static_cast<void>(consumer_.news());
      case signalled:
        return static_cast<void>(consumer_.signalled(Signal{}));
      case reserve:
        return make_room(decisions.number<std::uint16_t>() % (kFrameMax + 1));
      case commit:
        if (reserved_ > 0) producer_.commit(7, reserved_);
        reserved_ = 0;
        return;
      case signal:
        return producer_.signal(Signal{}, decisions.number<std::uint64_t>());
      case room:
        return static_cast<void>(producer_.room_appeared());
      case lend:
        return consumer_.lend(lent());
      case offer:
        return producer_.lend(decisions.number<std::uint8_t>());
      case borrow:
        return make_room_on_loan(decisions.number<std::uint16_t>() % (2 * kFrameMax));
      case poke:
        return write_anywhere(decisions);
      default:
        return write_cell(decisions);
    }
  }

 private:
  void show() {
    const bool was_corrupt = consumer_.corrupt();
    tutti::Frame frame;
    shown_ = consumer_.peek(frame);
    TUTTI_ASSERT(!was_corrupt || consumer_.corrupt(), "what was corrupt stays so");
    if (!shown_) return;
    TUTTI_ASSERT(frame.payload.size() <= layout().frame_bytes_max, "no frame is too long");
    TUTTI_ASSERT(inside(frame.payload.data(), frame.payload.size()) ||
                     inside(outbox(), frame.payload.data(), frame.payload.size()) ||
                     inside(lent(), frame.payload.data(), frame.payload.size()),
                 "a frame lies in the queue, in the outbox, or in what was lent");
    unsigned sum = 0;
    for (const std::byte each : frame.payload) sum += std::to_integer<unsigned>(each);
    sum_ += sum;  // read, so that the address sanitizer looks
  }

  // As an endpoint does it; whoever answers is the sender itself here.
  void release_shown() {
    if (!std::exchange(shown_, false)) return;
    producer_.hear_released(consumer_.told());
    consumer_.release();
    producer_.tell_released(consumer_.taken());
  }

  void make_room(std::size_t bytes) {
    reserved_ = 0;
    const auto place = producer_.reserve(bytes);
    if (place.data() == nullptr) return;
    TUTTI_ASSERT(bytes <= kTinyBytes || inside(place.data(), place.size()),
                 "room lies in the queue");
    std::memset(place.data(), 0x5a, place.size());
    reserved_ = bytes;
  }

  // As an endpoint does it, with what another queue's producer has lent.
  void make_room_on_loan(std::size_t bytes) {
    std::byte* const place = consumer_.borrow(bytes);
    if (place == nullptr) return;
    TUTTI_ASSERT(inside(outbox(), place, bytes), "room on loan lies in the outbox");
    reserved_ = 0;
    const auto room = producer_.reserve_on_loan({place, bytes});
    if (room.data() == nullptr) return;
    consumer_.use_loan();
    std::memset(room.data(), 0xa5, room.size());
    reserved_ = bytes;
  }

  static void write_anywhere(Decisions& decisions) {
    const std::size_t at = decisions.number<std::uint16_t>() % (layout().payloads_offset() - 255);
    const std::string_view bytes = decisions.text();
    std::memcpy(memory() + at, bytes.data(), bytes.size());
  }

  // A cell that looks right at first sight.
  static void write_cell(Decisions& decisions) {
    const auto number = decisions.number<std::uint8_t>();
    Cell& target = cell(decisions.number<std::uint8_t>());
    target.tag.store(decisions.number<std::uint8_t>());
    target.bytes.store(decisions.number<std::uint32_t>());
    target.place.store(decisions.number<std::uint32_t>());
    const std::size_t next = decisions.number<std::uint8_t>() % kCellCount;
    target.number.store(numbered(number, next, decisions.number<std::uint8_t>() & kReleasedMax));
  }

  Consumer consumer_;
  Producer producer_;
  bool shown_ = false;
  std::size_t reserved_ = 0;
  unsigned sum_ = 0;
};

}  // namespace

std::size_t input_bytes_max() { return 512; }

void run(std::string_view input) {
  memory();
  const AllocationLimit limit(16 * 1024);
  Decisions decisions(input);
  World world;
  for (std::size_t i = 0; i < kStepsMax && !decisions.done(); ++i) {
    const int call = decisions.number<std::uint8_t>() % kCalls;
    world.call(call, decisions);
  }
}

std::vector<std::string> seeds() {
  Script honest;
  for (const int bytes : {8, 1000, 2000, 8000})
    honest.byte(reserve)
        .number(static_cast<std::uint16_t>(bytes))
        .byte(commit)
        .byte(peek)
        .byte(release);
  Script full;
  for (int i = 0; i < 6; ++i)
    full.byte(reserve).number(static_cast<std::uint16_t>(kFrameMax)).byte(commit);
  full.byte(room).byte(peek).byte(release).byte(room).byte(signal).number(std::uint64_t{9});
  const auto forged = [](std::uint32_t bytes, std::uint32_t place) {
    return Script()
        .byte(poke_cell)
        .byte(1)
        .byte(0)
        .byte(7)
        .number(bytes)
        .number(place)
        .byte(31)
        .byte(9)
        .byte(news)
        .byte(peek)
        .byte(release)
        .byte(signalled);
  };
  Script loans;
  for (const int line : {0, 16, 17, 255})
    loans.byte(offer)
        .byte(static_cast<std::uint8_t>(line))
        .byte(borrow)
        .number(static_cast<std::uint16_t>(kFrameMax))
        .byte(lend)
        .byte(commit)
        .byte(peek)
        .byte(peek)
        .byte(release);
  Script mad;
  mad.byte(poke)
      .number(static_cast<std::uint16_t>(sizeof(Control::Description)))
      .text(std::string(8, '\xff'))
      .byte(reserve)
      .number(std::uint16_t{8})
      .byte(commit)
      .byte(room);
  return {honest,
          full,
          forged(64, kInCell),
          forged(4096, kBehind),
          forged(4097, kBehind),
          forged(8192, 256),
          forged(0xffffffff, 0x7fffffff),
          forged(64, kInOutbox + 1),
          forged(65, kInOutbox + 143),
          forged(8193, kOnLoan),
          loans,
          mad};
}

}  // namespace tutti::fuzz

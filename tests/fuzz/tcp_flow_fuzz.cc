// What a peer sends on its connections after the greeting: frames and signals, in pieces of any
// size, ending anywhere. The bytes go through real sockets.
//
// Beyond not crashing: the frames that come out are those of a plain reading of the same bytes, up
// to the first that no frame can be; signals are the greatest values that were raised; whatever
// arrives, the receivers hold no more beside their ring than a few words.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fuzz.hpp"
#include "transport/tcp/flow.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;
using namespace tutti::transport::tcp;

constexpr std::size_t kFrameMax = 256;
constexpr std::size_t kQueueBytes = 4096;  // a page, the least that a ring has

// What a receiver may take from `operator new`, however much arrives: the ring is mapped and its
// size fixed, frames are read where they lie, and signals have places of their own. What is left
// are strings that a connection has once each: the key, the last words and why it ended.
constexpr std::size_t kHeldMax = 1024;

// Frames by tag and payload, which lies in the input.
using Frames = std::vector<std::pair<std::uint32_t, std::string_view>>;

struct Reading {
  Frames frames;
  bool goodbye = false;
  bool corrupt = false;
};

// The same bytes, read without sockets, rings or haste.
Reading plain_reading(std::string_view bytes) {
  Reading reading;
  while (bytes.size() >= kHeaderBytes) {
    const FrameHeader header = read_header(reinterpret_cast<const std::byte*>(bytes.data()));
    const bool last = header.bytes == kGoodbyeBytes;
    reading.goodbye = last && (header.tag & kGoodbyeFailed) == 0;
    reading.corrupt = !last && header.bytes > kFrameMax;
    if (header.bytes > kFrameMax || bytes.size() < frame_span(header.bytes)) return reading;
    reading.frames.emplace_back(header.tag, bytes.substr(kHeaderBytes, header.bytes));
    bytes.remove_prefix(frame_span(header.bytes));
  }
  return reading;
}

std::array<Socket, 2> connected() {
  int pair[2] = {-1, -1};
  const int made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
  TUTTI_ASSERT(made == 0, "a pair of sockets");
  return {Socket(pair[0]), Socket(pair[1])};
}

void write(const Socket& socket, std::string_view bytes) {
  const ssize_t sent = ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  TUTTI_ASSERT(sent == static_cast<ssize_t>(bytes.size()), "the socket takes a little");
}

void check_frame(const Frames& expected, std::size_t next, std::uint32_t tag,
                 std::span<const std::byte> payload) {
  TUTTI_ASSERT(next < expected.size(), "no more frames than were sent");
  const std::string_view got(reinterpret_cast<const char*>(payload.data()), payload.size());
  TUTTI_ASSERT(tag == expected[next].first && got == expected[next].second,
               "the frames are those that were sent");
}

// The same of so many bytes from `begin` on.
void check_part(const Frames& expected, std::size_t next, std::uint32_t tag,
                std::span<const std::byte> part, std::size_t begin) {
  const std::string_view got(reinterpret_cast<const char*>(part.data()), part.size());
  TUTTI_ASSERT(
      tag == expected[next].first && got == expected[next].second.substr(begin, part.size()),
      "parts of frames are those that were sent");
}

// Where every other frame is taken to.
using Place = std::array<std::byte, kFrameMax>;

// Compares what has arrived with the frames from `next` on, and moves it.
void take_frames(FrameReceiver& receiver, const Frames& expected, Place& place, std::size_t& next) {
  while (true) {
    if (next % 2 == 1 && next < expected.size()) {
      const auto& [tag, payload] = expected[next];
      const std::size_t head = tag % (payload.size() + 1);
      Frame shown;
      if (next % 4 == 1 && receiver.peek_head(head, shown, false)) {
        TUTTI_ASSERT(shown.payload.size() >= head, "what was asked for is shown");
        check_part(expected, next, shown.tag, shown.payload, 0);
      }
      const std::span<std::byte> wanted(place.data(), payload.size() - head);
      const Taken taken = receiver.take(tag, head, wanted, false);
      if (taken == Taken::nothing) return;
      if (taken == Taken::frame) {
        check_part(expected, next++, tag, wanted, head);
        continue;
      }
    }
    Frame frame;
    if (!receiver.peek(frame)) return;
    check_frame(expected, next++, frame.tag, frame.payload);
    receiver.release();
  }
}

void check_frames(Decisions decisions) {
  const Reading expected = plain_reading(decisions.rest());
  const AllocationLimit limit(kHeldMax);
  auto [ours, theirs] = connected();
  FrameReceiver receiver;
  TUTTI_ASSERT(receiver.attach(std::move(ours), "key", kQueueBytes, kFrameMax).ok(),
               "memory for a ring");
  const std::size_t piece = 1 + decisions.rest().size() / 3;
  std::size_t taken = 0;
  Place place;
  while (!decisions.done()) {
    write(theirs, decisions.bytes(piece));
    receiver.on_events(EPOLLIN);
    do take_frames(receiver, expected.frames, place, taken);
    while (receiver.wants_to_receive() && receiver.receive());
    if (receiver.corrupt()) break;
  }
  theirs.close();
  receiver.on_events(EPOLLIN | EPOLLHUP);
  for (int i = 0; i < 4 && receiver.end() == End::none; ++i) {
    if (receiver.wants_to_receive()) receiver.receive();
    take_frames(receiver, expected.frames, place, taken);
  }
  TUTTI_ASSERT(taken == expected.frames.size(), "all frames that were sent");
  TUTTI_ASSERT(receiver.corrupt() == expected.corrupt, "what is no frame is noticed");
  TUTTI_ASSERT(receiver.end() == (expected.goodbye ? End::goodbye : End::lost),
               "a goodbye, or none, is noticed");
}

void check_signals(Decisions decisions) {
  const AllocationLimit limit(kHeldMax);
  auto [ours, theirs] = connected();
  SignalReceiver receiver;
  receiver.attach(std::move(ours));
  std::array<std::uint64_t, kSignalCount> expected{};
  bool nonsense = false;
  for (Decisions raises = decisions; raises.rest().size() >= sizeof(Raise);) {
    const auto which = raises.number<std::uint64_t>();
    const auto value = raises.number<std::uint64_t>();
    nonsense = nonsense || which >= kSignalCount;
    if (which < kSignalCount) expected[which] = std::max(expected[which], value);
  }
  while (!decisions.done()) {
    write(theirs, decisions.bytes(700));
    receiver.on_events();
    while (receiver.wants_to_receive() && receiver.receive()) continue;
  }
  TUTTI_ASSERT(receiver.corrupt() == nonsense, "signals that do not exist are noticed");
  for (std::size_t i = 0; i < kSignalCount; ++i)
    TUTTI_ASSERT(receiver.value(static_cast<Signal>(i)) == expected[i],
                 "the greatest value counts");
}

// The last words that a sender reads: anything may stand there.
void check_last_words(Decisions decisions) {
  const AllocationLimit limit(kHeldMax);
  // A listener that accepts at once, to be connected to by the class itself, costs more than it
  // brings; the words are those of FrameReceiver::say_goodbye, which is checked to fit them.
  auto [ours, theirs] = connected();
  FrameReceiver receiver;
  TUTTI_ASSERT(receiver.attach(std::move(ours), "key", kQueueBytes, kFrameMax).ok(),
               "memory for a ring");
  const auto words = decisions.number<std::uint32_t>();
  TUTTI_ASSERT(receiver.say_goodbye(words), "a goodbye fits");
  std::array<char, kLastWordsBytes + 1> heard{};
  const ssize_t got = ::recv(theirs.number(), heard.data(), heard.size(), 0);
  TUTTI_ASSERT(got == static_cast<ssize_t>(kLastWordsBytes) &&
                   read_last_words({heard.data(), kLastWordsBytes}, "key") == words,
               "a goodbye is what its reader expects");
}

std::string frame(std::uint32_t tag, std::string_view payload) {
  Script script;
  script.number(static_cast<std::uint32_t>(payload.size())).number(tag).bytes(payload);
  return std::string(script) + std::string(padded(payload.size()) - payload.size(), '\0');
}

}  // namespace

std::size_t input_bytes_max() { return 3 * 1024; }

void run(std::string_view input) {
  Decisions decisions(input);
  switch (decisions.number<std::uint8_t>() % 8) {
    case 0:
      return check_last_words(decisions);
    case 1:
    case 2:
      return check_signals(decisions);
    default:
      return check_frames(decisions);
  }
}

std::vector<std::string> seeds() {
  const std::string goodbye = Script().number(kGoodbyeBytes).number(kGoodbyeInPair);
  const std::string raises = Script()
                                 .number(std::uint64_t{0})
                                 .number(std::uint64_t{5})
                                 .number(std::uint64_t{1})
                                 .number(std::uint64_t{3});
  std::string many;
  for (std::uint32_t i = 0; i < 12; ++i) many += frame(i, std::string(20 * i, 'x'));
  std::string empty;  // the most frames for their bytes
  for (std::uint32_t i = 0; i < 260; ++i) empty += frame(i, "");
  return {"\3" + frame(1, "hello") + frame(2, "") + goodbye,
          "\3" + many + goodbye,
          "\3" + empty,
          "\3" + frame(1, "hello").substr(0, 10),
          "\3" + frame(9, std::string(kFrameMax + 1, 'y')),
          "\1" + raises,
          "\1" + raises.substr(0, 20),
          std::string("\0\1\0\0\200", 5)};
}

}  // namespace tutti::fuzz

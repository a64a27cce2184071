// What ranks say to each other over UCX: cards, which come through an authenticated exchange, and
// where frames claim to lie in the receiver's ring.
//
// Beyond not crashing: what parses says the same when it is printed and read again; whatever is
// admitted lies within the ring, apart from every other frame that is not released.
#include <algorithm>
#include <cstring>

#include "fuzz.hpp"
#include "transport/ucx/ring.hpp"
#include "transport/ucx/wire.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;
using namespace tutti::transport::ucx;

void check_card(std::string_view bytes) {
  const Result<Card> card = parse_card(bytes);
  if (!card.ok()) return;
  TUTTI_ASSERT(card->nonce.size() == kNonceBytes, "a card has a whole nonce");
  const std::string printed = encode_card(*card);
  const Result<Card> again = parse_card(printed);
  TUTTI_ASSERT(again.ok() && encode_card(*again) == printed, "a card survives being printed");
}

constexpr std::size_t kCapacity = 2048;
constexpr std::size_t kFrameMax = 1000;

// One step of a peer's: a claim, small numbers of it most of the time, and whether a frame is
// released before.
struct Step {
  std::uint64_t number;
  std::uint64_t position;
  std::uint64_t bytes;
  std::uint64_t releases;
};

void check_claims(std::string_view bytes) {
  Inbox inbox(kCapacity, kFrameMax);
  std::byte* lowest = nullptr;
  for (; bytes.size() >= sizeof(Step); bytes.remove_prefix(sizeof(Step))) {
    Step step;
    std::memcpy(&step, bytes.data(), sizeof(step));
    Frame frame;
    if (step.releases % 2 == 1 && inbox.front(frame)) inbox.release();
    const char* why = nullptr;
    std::byte* const place =
        inbox.admit({step.number, step.position, 0, static_cast<std::size_t>(step.bytes)}, why);
    if (place == nullptr) return;  // the connection ends
    TUTTI_ASSERT(why == nullptr, "what is admitted is not objected to");
    if (lowest == nullptr) lowest = place - step.position % kCapacity;
    TUTTI_ASSERT(place >= lowest && place + step.bytes <= lowest + kCapacity,
                 "a frame lies within the ring");
    std::fill_n(place, step.bytes, static_cast<std::byte>(step.number));
    inbox.finish(step.number);
  }
  Frame frame;
  for (std::uint64_t number = inbox.released(); inbox.front(frame); ++number) {
    for (const std::byte byte : frame.payload)
      TUTTI_ASSERT(byte == static_cast<std::byte>(number), "no frame lies over another one");
    inbox.release();
  }
}

std::string steps(const std::vector<Step>& all) {
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Step)};
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  const AllocationLimit limit(64 * input.size() + 16 * 1024);
  check_card(input);
  check_claims(input);
}

std::vector<std::string> seeds() {
  Card card;
  card.address = std::string(200, 'a');
  card.nonce = std::string(kNonceBytes, 'n');
  card.host = "boot/1";
  card.process = 17;
  card.frame_bytes_max = 4096;
  card.ring_bytes = 16384;
  card.channel_count = 2;
  card.context = 7;
  Card refused;
  refused.status = Status(StatusCode::unsupported, "no UCX");
  return {encode_card(card), encode_card(refused),
          steps({{0, 0, 1000, 0}, {1, 1024, 10, 0}, {2, 1088, 0, 1}, {3, 1152, 700, 0}}),
          steps({{1, 64, 10, 0}, {0, 0, 20, 0}, {3, 1088, 960, 0}, {2, 128, 960, 0}})};
}

}  // namespace tutti::fuzz

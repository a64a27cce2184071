// wire.hpp: what the ranks say to each other over TCP, and the parsers of it. All of it comes from
// outside, so every length is checked.
//
//   card      exchanged when the communicator is made: where a rank listens, a nonce, its settings
//   greeting  first bytes of a connection: who speaks to whom about what, with a proof of the job's
//             secret over the nonces of both cards and the address from which the connection comes.
//             The cards came through an authenticated exchange: their nonces are the challenges of
//             both sides, so that nobody waits for an answer before it may speak. Each greeting is
//             good once, from one place: what was heard on the wire is worth nothing to others.
//   last words  what the listener says back, if anything, at the end: a goodbye with a proof that
//             only the greeted can make, and for this connection only
//   frame     u32 bytes, u32 tag, u64 filling, payload padded to 16 bytes
//   goodbye   a frame header whose length no frame can have; its tag says whether the speaker has
//             a connection of its own to the listener, or which rank it lost
//   moved     another such header: what follows comes back on the connection that the listener
//             opened, behind last words that say so and prove it (kMoved)
//   raise     u64 which, u64 value: a signal
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "transport/bootstrap/authentication.hpp"
#include "transport/options.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::tcp {

struct FrameHeader {
  std::uint32_t bytes = 0;
  std::uint32_t tag = 0;
  std::uint64_t filling = 0;  // up to the unit of a stream, see below; nobody reads it
};
inline constexpr std::size_t kHeaderBytes = sizeof(FrameHeader);
inline constexpr std::uint32_t kGoodbyeBytes = 0xffffffff;
inline constexpr std::uint32_t kMovedBytes = 0xfffffffe;
inline constexpr std::uint32_t kGoodbyeAlone = 0;   // the speaker never connected back
inline constexpr std::uint32_t kGoodbyeInPair = 1;  // its own connection ends with a goodbye too
inline constexpr std::uint32_t kMoved = 2;          // no goodbye: frames follow
inline constexpr std::uint32_t kGoodbyeFailed = 0x80000000;  // plus its failure (failed_words)

// Last words of a rank that gives up: what kind of failure, and with which rank it began.
std::uint32_t failed_words(const Status& failure);
// Nothing when they say no such thing. `from`: whose words they are.
std::optional<Status> read_failed_words(std::uint32_t words, Rank from);

inline FrameHeader read_header(const std::byte* at) {
  FrameHeader header;
  std::memcpy(&header, at, kHeaderBytes);
  return header;
}

inline void write_header(std::byte* at, FrameHeader header) {
  std::memcpy(at, &header, kHeaderBytes);
}

// Payloads start at multiples of 16, so that elements of every type can be read where they lie; and
// because the system copies them into pages of its own by `rep movsb`, which some processors do 16
// times as slowly where it ends up less than 16 bytes behind the place within a page that it
// came from: 3.5 instead of 58 GB/s on an EPYC of 2023. Memory of programs lies at multiples of 16.
inline constexpr std::size_t kUnitBytes = 16;
static_assert(kHeaderBytes == kUnitBytes);
inline constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}
inline constexpr std::size_t frame_span(std::size_t bytes) { return kHeaderBytes + padded(bytes); }

// What the greeted says at the end: a header and a proof.
inline constexpr std::size_t kLastWordsBytes = kHeaderBytes + kProofBytes;
std::string encode_last_words(std::uint32_t tag, std::string_view key);
// The tag, or nothing unless the words are genuine.
std::optional<std::uint32_t> read_last_words(std::string_view bytes, std::string_view key);

struct Raise {
  std::uint64_t which = 0;
  std::uint64_t value = 0;
};

// Where a rank listens, or why it cannot.
struct Card {
  Status status;
  std::string host;  // numeric
  std::uint16_t port = 0;
  std::string nonce;
  std::uint64_t frame_bytes_max = 0;
  std::uint32_t channel_count = 0;
  std::uint64_t context = 0;
};

std::string encode_card(const Card& card);
// Errors  corrupt_data, or what card.status says.
Result<Card> parse_card(std::string_view bytes);

enum class Purpose : std::uint32_t { frames = 1, signals = 2 };

struct Greeting {
  std::uint64_t context = 0;
  Rank from = 0;
  Rank to = 0;
  std::int32_t channel = 0;
  Purpose purpose = Purpose::frames;
};

inline constexpr std::size_t kGreetingBytes = 8 + 8 + 4 * 4 + kProofBytes;

// What the proofs of a connection are about, apart from the greeting itself.
struct Ends {
  std::string from_nonce;  // of the card of greeting.from
  std::string to_nonce;    // of the card of greeting.to
  std::string origin;      // SocketAddress::identity of the end that connected
};

std::string encode_greeting(const Greeting& greeting, const Authenticator& authenticator,
                            const Ends& ends);
// With which the last words are proved.
std::string last_words_key(const Greeting& greeting, const Authenticator& authenticator,
                           const Ends& ends);

// How a connection is opened.
struct Opening {
  std::string greeting;
  std::string last_words_key;
};

// What a greeting claims, before its proof is checked. Nothing when the bytes are no greeting.
std::optional<Greeting> parse_greeting(std::string_view bytes);

// True when `bytes` is the greeting that encode_greeting makes.
bool genuine(std::string_view bytes, const Greeting& greeting, const Authenticator& authenticator,
             const Ends& ends);

}  // namespace tutti::transport::tcp

// wire.hpp: what ranks say to each other over a net plugin, and the parsers of it. All of it comes
// from outside, so every length is checked.
//
//   card     exchanged when the communicator is made: a nonce, the rank's settings, and where it
//            listens for each peer on each channel; or why it cannot
//   record   one message of the plugin: a header and what belongs to its kind
//   hello    the first record of a connection: who speaks to whom on which channel of which
//            communicator, with a proof of the job's secret over the nonces of both cards
//   frame    a frame's payload
//   news     the values of all signals
//   goodbye  nothing more comes: the speaker closed its communicator
//   failed   nothing more comes: the speaker gave up, and its tag says why
//
// Each record also says how many frames its speaker has released, so that no more are sent than
// the other end has room for.
//
// What is protected: the handles travel through the exchange of the ranks' meeting, which is
// authenticated, and a hello proves that its speaker belongs to the job. What comes after it is as
// safe as the plugin's own network: it is neither encrypted nor authenticated by us, and a plugin
// sees and may change everything. TUTTI_CHECKSUMS=on finds accidents, not enemies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/authentication.hpp"
#include "transport/net_plugin/plugin.hpp"
#include "transport/options.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::net_plugin {

enum class RecordKind : std::uint32_t { hello = 1, frame = 2, news = 3, goodbye = 4, failed = 5 };

struct RecordHeader {
  RecordKind kind{};
  std::uint32_t tag = 0;
  std::uint64_t released = 0;  // frames, since the connection began
};
inline constexpr std::size_t kHeaderBytes = sizeof(RecordHeader);

inline RecordHeader read_header(const std::byte* at) {
  RecordHeader header;
  std::memcpy(&header, at, kHeaderBytes);
  return header;
}

inline void write_header(std::byte* at, const RecordHeader& header) {
  std::memcpy(at, &header, kHeaderBytes);
}

using SignalValues = std::array<std::uint64_t, kSignalCount>;

// Room of a record that is no frame.
inline constexpr std::size_t kControlBytes = 128;
// Room of any record with frames of so many bytes. Payloads start at multiples of 16.
inline constexpr std::size_t slot_bytes(std::size_t frame_bytes_max) {
  const std::size_t bytes = (kHeaderBytes + frame_bytes_max + 63) / 64 * 64;
  return bytes < kControlBytes ? kControlBytes : bytes;
}

// Who speaks to whom.
struct Hello {
  std::uint64_t context = 0;
  Rank from = 0;
  Rank to = 0;
  std::int32_t channel = 0;
};
inline constexpr std::size_t kHelloBytes = 8 + 8 + 3 * 4 + kProofBytes;
static_assert(kHeaderBytes + kHelloBytes <= kControlBytes &&
              kHeaderBytes + sizeof(SignalValues) <= kControlBytes);

// The nonces of the cards of both ends.
struct Nonces {
  std::string from;
  std::string to;
};

std::string encode_hello(const Hello& hello, const Authenticator& authenticator,
                         const Nonces& nonces);
// True when `bytes` is the hello that encode_hello makes.
bool genuine(std::string_view bytes, const Hello& hello, const Authenticator& authenticator,
             const Nonces& nonces);

// One rank's part of the exchange.
struct Card {
  Status status;
  std::string plugin;  // for texts
  std::string nonce;
  std::uint64_t frame_bytes_max = 0;
  std::uint64_t frames = 0;  // how many the receiver has room for
  std::uint32_t channel_count = 0;
  std::uint64_t context = 0;
  std::vector<Handle> handles;  // by peer * channel_count + channel; its own are empty
};

std::string encode_card(const Card& card);
// Errors  corrupt_data, or what card.status says.
Result<Card> parse_card(std::string_view bytes);

}  // namespace tutti::transport::net_plugin

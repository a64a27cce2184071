// wire.hpp: what ranks say to each other over UCX, and the parsers of it. All of it comes from
// outside, so every length is checked.
//
//   card     exchanged when the communicator is made: the address of a rank's worker, a nonce, its
//            settings, and which process of which host it is; or why it cannot
//   record   one active message: a header and what belongs to its kind
//   hello    the speaker wants this channel
//   frame    a frame's payload, and where in the receiver's ring it goes (ring.hpp)
//   lent     a frame that ends with bytes of lent memory (lent_memory.hpp): what goes before them
//            stands behind the header, and belongs into the ring; they are fetched
//   news     the values of all signals
//   ask      the speaker waits for room, and wants to know as soon as there is some
//   goodbye  nothing more comes on any channel: the speaker closed its communicator
//   failed   nothing more comes on any channel: the speaker gave up, and its tag says why
//
// Each record also says how many frames its speaker has released on that channel.
//
// What is protected: UCX knows no secret, and whoever reaches a worker's address can send it active
// messages. So each record begins with a key that only ranks of the job can compute: a proof of the
// job's secret over the nonces of both cards, the direction and the communicator. A record without
// it is dropped unread; nothing is kept for it, and no answer given. The cards travel through the
// exchange of the ranks' meeting, which is authenticated. The key goes in clear, as what follows
// does: who can listen to the network can read everything and speak for others, and what
// UCX itself does with bytes from outside before we see them is UCX's. On networks where that is
// too little, use TUTTI_TRANSPORT=tcp or a network of the job's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "transport/bootstrap/authentication.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::ucx {

enum class RecordKind : std::uint32_t {
  hello = 1,
  frame = 2,
  news = 3,
  ask = 4,
  goodbye = 5,
  failed = 6,
  lent = 7
};

inline constexpr std::size_t kKeyBytes = 16;
using Key = std::array<char, kKeyBytes>;

struct RecordHeader {
  Key key{};
  RecordKind kind{};
  std::uint32_t from = 0;  // rank
  std::uint32_t channel = 0;
  std::uint32_t tag = 0;
  std::uint64_t released = 0;  // frames, since the communicator began
  std::uint64_t number = 0;    // of a frame: so many came before it
  std::uint64_t position = 0;  // of a frame: where it lies in the stream of the ring
};
inline constexpr std::size_t kHeaderBytes = sizeof(RecordHeader);
static_assert(kHeaderBytes == 56);

inline RecordHeader read_header(const void* at) {
  RecordHeader header;
  std::memcpy(&header, at, kHeaderBytes);
  return header;
}

using SignalValues = std::array<std::uint64_t, kSignalCount>;

// Who speaks to whom in which communicator.
struct Direction {
  std::uint64_t context = 0;
  Rank from = 0;
  Rank to = 0;
};

// With which the records of a direction begin; `nonces`: those of both cards.
Key key_of(const Direction& direction, const Authenticator& authenticator,
           std::string_view from_nonce, std::string_view to_nonce);
// Cost: the same whether they are nearly equal or not at all.
bool same(const Key& one, const Key& other);

// One rank's part of the exchange.
struct Card {
  Status status;
  std::string address;  // of its worker, UCX's own form
  std::string nonce;
  std::string host;           // where process numbers mean the same
  std::uint32_t process = 0;  // its number there
  std::uint64_t frame_bytes_max = 0;
  std::uint64_t ring_bytes = 0;
  std::uint32_t channel_count = 0;
  std::uint64_t context = 0;
};

std::string encode_card(const Card& card);
// Errors  corrupt_data, or what card.status says.
Result<Card> parse_card(std::string_view bytes);

}  // namespace tutti::transport::ucx

// What ranks say to each other over a net plugin: cards, which come through an authenticated
// exchange, and hellos, the first bytes of any connection that a plugin accepts.
//
// Beyond not crashing: what parses says the same when it is printed and read again; a hello is
// genuine only as it was made for this connection.
#include "fuzz.hpp"
#include "transport/net_plugin/wire.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;
using namespace tutti::transport::net_plugin;

void check_card(std::string_view bytes) {
  const Result<Card> card = parse_card(bytes);
  if (!card.ok()) return;
  TUTTI_ASSERT(card->nonce.size() == kNonceBytes, "a card has a whole nonce");
  const std::string printed = encode_card(*card);
  const Result<Card> again = parse_card(printed);
  TUTTI_ASSERT(again.ok() && encode_card(*again) == printed, "a card survives being printed");
  TUTTI_ASSERT(again->handles.size() == card->handles.size(), "no handle is lost");
  for (std::size_t i = 0; i < card->handles.size(); ++i)
    TUTTI_ASSERT(again->handles[i].bytes == card->handles[i].bytes, "handles stay as they are");
}

void check_hello(std::string_view bytes) {
  static const Authenticator authenticator("s3cret");
  const Nonces nonces{std::string(kNonceBytes, 'f'), std::string(kNonceBytes, 't')};
  const Hello hello{7, 1, 0, 2};
  const std::string right = encode_hello(hello, authenticator, nonces);
  TUTTI_ASSERT(right.size() == kHelloBytes, "hellos are of one size");
  TUTTI_ASSERT(genuine(bytes, hello, authenticator, nonces) == (right == bytes),
               "only the right hello is genuine");
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  const AllocationLimit limit(64 * input.size() + 16 * 1024);
  check_card(input);
  check_hello(input);
}

std::vector<std::string> seeds() {
  Card card;
  card.plugin = "kit v11";
  card.nonce = std::string(kNonceBytes, 'n');
  card.frame_bytes_max = 4096;
  card.frames = 4;
  card.channel_count = 2;
  card.context = 7;
  card.handles.resize(4);
  card.handles[1].bytes.fill(std::byte{0x5a});
  card.handles[2].bytes[3] = std::byte{1};
  Card refused;
  refused.status = Status(StatusCode::unsupported, "no plugin");
  const Nonces nonces{std::string(kNonceBytes, 'f'), std::string(kNonceBytes, 't')};
  return {encode_card(card), encode_card(refused),
          encode_hello({7, 1, 0, 2}, Authenticator("s3cret"), nonces)};
}

}  // namespace tutti::fuzz

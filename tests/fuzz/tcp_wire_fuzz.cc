// Cards come from the ranks of the job through an authenticated exchange; greetings are the first
// bytes of any connection that reaches a rank's port.
//
// Beyond not crashing: what parses prints to what was read; a greeting is genuine only with the
// right proof; texts are bounded.
#include <cstring>

#include "fuzz.hpp"
#include "transport/bootstrap/socket.hpp"
#include "transport/tcp/wire.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport;
using namespace tutti::transport::tcp;

const std::string kFrom(kNonceBytes, 'f');
const std::string kTo(kNonceBytes, 't');
const Ends kEnds{kFrom, kTo, "origin"};

void check_card(std::string_view bytes) {
  const Result<Card> card = parse_card(bytes);
  if (!card.ok()) return;
  TUTTI_ASSERT(encode_card(*card) == bytes, "a card prints to what was read");
  TUTTI_ASSERT(card->nonce.size() == kNonceBytes, "a card has a whole nonce");
  // The host is used as an address.
  const Result<SocketAddress> address = parse_address(card->host, card->port);
  if (address.ok()) TUTTI_ASSERT(address->port() == card->port, "a port stays what it is");
}

void check_greeting(std::string_view bytes) {
  static const Authenticator authenticator("s3cret");
  const auto greeting = parse_greeting(bytes);
  if (!greeting) return;
  TUTTI_ASSERT(bytes.size() == kGreetingBytes, "greetings are of one size");
  const std::string right = encode_greeting(*greeting, authenticator, kEnds);
  TUTTI_ASSERT(right.substr(0, kGreetingBytes - kProofBytes) ==
                   bytes.substr(0, kGreetingBytes - kProofBytes),
               "a claim prints to what was read");
  TUTTI_ASSERT(genuine(bytes, *greeting, authenticator, kEnds) == (right == bytes),
               "only the right proof is genuine");
  TUTTI_ASSERT(!genuine(bytes, *greeting, authenticator, {kTo, kFrom, "origin"}) || right != bytes,
               "a proof serves one direction");
  TUTTI_ASSERT(!genuine(bytes, *greeting, authenticator, {kFrom, kTo, "else"}) || right != bytes,
               "a proof serves one place");
}

void check_last_words(std::string_view bytes) {
  if (const auto tag = read_last_words(bytes, "key"))
    TUTTI_ASSERT(encode_last_words(*tag, "key") == bytes, "last words print to what was read");
}

}  // namespace

std::size_t input_bytes_max() { return 512; }

void run(std::string_view input) {
  const AllocationLimit limit(16 * input.size() + 16 * 1024);
  check_card(input);
  check_greeting(input);
  check_last_words(input);
}

std::vector<std::string> seeds() {
  Card card;
  card.host = "127.0.0.1";
  card.port = 4711;
  card.nonce = kFrom;
  card.frame_bytes_max = 65536;
  card.channel_count = 4;
  card.context = 99;
  Card other = card;
  other.host = "fe80::1%lo";
  Card failed;
  failed.status = Status(StatusCode::system_error, "no ports left");
  const Authenticator authenticator("s3cret");
  const Authenticator stranger("guess");
  return {encode_card(card),
          encode_card(other),
          encode_card(failed),
          encode_greeting({7, 2, 5, 1, Purpose::signals}, authenticator, kEnds),
          encode_greeting({7, 2, 5, 0, Purpose::frames}, stranger, kEnds),
          encode_last_words(kGoodbyeInPair, "key"),
          encode_last_words(kGoodbyeAlone, "guess")};
}

}  // namespace tutti::fuzz

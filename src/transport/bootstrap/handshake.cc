// handshake.cc: see handshake.hpp.
#include "transport/bootstrap/handshake.hpp"

#include <utility>

#include "transport/bootstrap/bytes.hpp"

namespace tutti::transport {
namespace {

constexpr std::string_view kCallerPurpose = "tutti rendezvous 2: caller to listener";
constexpr std::string_view kListenerPurpose = "tutti rendezvous 2: listener to caller";

// What the proofs of both sides are about.
std::string statement(const Hello& hello, std::string_view listener_nonce) {
  return ByteWriter().text(encode_hello(hello)).text(listener_nonce).bytes();
}

}  // namespace

std::optional<std::string> CallerHandshake::prove(std::string_view challenge,
                                                  const Authenticator& authenticator) {
  if (challenge.size() != kNonceBytes || !listener_nonce_.empty()) return std::nullopt;
  listener_nonce_ = challenge;
  return authenticator.prove(kCallerPurpose, statement(hello_, listener_nonce_));
}

bool CallerHandshake::accepts(std::string_view welcome, const Authenticator& authenticator) const {
  return !listener_nonce_.empty() &&
         authenticator.verify(welcome, kListenerPurpose, statement(hello_, listener_nonce_));
}

bool ListenerHandshake::hear(std::string_view hello, const NonceSource& nonces) {
  auto parsed = parse_hello(hello);
  if (!parsed || !nonce_.empty()) return false;
  hello_ = std::move(*parsed);
  nonce_ = nonces();
  return true;
}

bool ListenerHandshake::accepts(std::string_view proof, const Authenticator& authenticator) const {
  return !nonce_.empty() && authenticator.verify(proof, kCallerPurpose, statement(hello_, nonce_));
}

std::string ListenerHandshake::welcome(const Authenticator& authenticator) const {
  return authenticator.prove(kListenerPurpose, statement(hello_, nonce_));
}

}  // namespace tutti::transport

// authentication.cc: see authentication.hpp.
#include "transport/bootstrap/authentication.hpp"

#include <sodium.h>

#include "base/assert.hpp"
#include "transport/bootstrap/bytes.hpp"

namespace tutti::transport {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string message(std::string_view purpose, std::string_view statement) {
  return ByteWriter().text(purpose).text(statement).bytes();
}

}  // namespace

std::string random_nonce() {
  TUTTI_ASSERT(sodium_init() >= 0, "libsodium found no source of randomness");
  std::string nonce(kNonceBytes, '\0');
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Authenticator::Authenticator(std::string_view secret) : key_(crypto_auth_KEYBYTES, '\0') {
  static_assert(crypto_auth_BYTES == kProofBytes);
  TUTTI_ASSERT(sodium_init() >= 0, "libsodium found no source of randomness");
  // Secrets come in any length; the hash makes a key of the right one.
  crypto_generichash(reinterpret_cast<unsigned char*>(key_.data()), key_.size(), bytes_of(secret),
                     secret.size(), nullptr, 0);
}

std::string Authenticator::prove(std::string_view purpose, std::string_view statement) const {
  const std::string text = message(purpose, statement);
  std::string proof(kProofBytes, '\0');
  crypto_auth(reinterpret_cast<unsigned char*>(proof.data()), bytes_of(text), text.size(),
              bytes_of(key_));
  return proof;
}

bool Authenticator::verify(std::string_view proof, std::string_view purpose,
                           std::string_view statement) const {
  if (proof.size() != kProofBytes) return false;
  const std::string text = message(purpose, statement);
  return crypto_auth_verify(bytes_of(proof), bytes_of(text), text.size(), bytes_of(key_)) == 0;
}

}  // namespace tutti::transport

// handshake.hpp: how the two ends of a connection prove to each other that they know the job's
// secret, before either believes anything that the other says.
//
//   caller    hello: purpose, who calls whom, world size, job, a nonce
//   listener  challenge: a nonce
//   caller    proof   over the hello and both nonces
//   listener  welcome: another proof over the same
//
// Both nonces are fresh, so neither proof is worth anything on another connection; the two proofs
// are of different purposes, so none can be sent back; and they cover who calls whom and what for.
// The caller proves first: a listener is on a port that anybody may ask. Knows no connection.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/message.hpp"

namespace tutti::transport {

class CallerHandshake {
 public:
  // Requires  hello.nonce is fresh.
  explicit CallerHandshake(Hello hello) : hello_(std::move(hello)) {}

  const Hello& hello() const { return hello_; }
  // The body of `proof`, or nothing when the challenge is none.
  std::optional<std::string> prove(std::string_view challenge, const Authenticator& authenticator);
  bool accepts(std::string_view welcome, const Authenticator& authenticator) const;

 private:
  Hello hello_;
  std::string listener_nonce_;
};

class ListenerHandshake {
 public:
  // Reads a hello. False when it is none.
  bool hear(std::string_view hello, const NonceSource& nonces);

  const Hello& hello() const { return hello_; }
  const std::string& challenge() const { return nonce_; }
  bool accepts(std::string_view proof, const Authenticator& authenticator) const;
  // The body of `welcome`.
  std::string welcome(const Authenticator& authenticator) const;

 private:
  Hello hello_;
  std::string nonce_;
};

}  // namespace tutti::transport

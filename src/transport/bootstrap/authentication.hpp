// authentication.hpp: proofs that a process knows the job's secret, without sending it.
//
// A proof is a keyed hash over a purpose and a statement; whoever checks puts a fresh nonce of its
// own into the statement, so that an overheard proof is worth nothing later. Knows libsodium; does
// not know messages or sockets.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::transport {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

// Where nonces come from; random_nonce, unless a test or a simulation wants to repeat itself.
using NonceSource = std::function<std::string()>;

// kNonceBytes from the operating system.
std::string random_nonce();

class Authenticator {
 public:
  // The secret may be empty: proofs then guard against accidents only.
  explicit Authenticator(std::string_view secret);

  // kProofBytes bytes. `purpose` keeps proofs of one protocol from serving in another.
  std::string prove(std::string_view purpose, std::string_view statement) const;

  // Cost: the same whether the proof is nearly right or all wrong.
  bool verify(std::string_view proof, std::string_view purpose, std::string_view statement) const;

 private:
  std::string key_;
};

}  // namespace tutti::transport

// wire.hpp: what processes on one host say to each other over Unix sockets while they connect:
// fixed-size messages, each with at most one file descriptor.
//
// The sockets live in the abstract namespace (no name in the file system) under a random name that
// only the ranks of the job learn. A connection counts only if it comes from the same user, from
// the process that it claims to be, and its first message carries a proof: a hash, keyed with the
// job's secret, of who talks to whom, bound to this very listener (doorman.hpp). Whoever connects
// looks who listens before it hands over anything, and what a listener answers is proved for the
// question. Everything that arrives is of one size and checked.
//
// Does not know queues or regions; it carries their descriptors.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/shm/file.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::shm {

enum class MessageKind : std::uint32_t {
  ask_board = 1,      // a rank asks rank 0 for the doorbells; carries a proof
  board = 2,          // the answer, with the file; carries a proof
  hello = 3,          // the first message of a connection that stays; carries a proof
  queue = 4,          // the file of a queue from the sender to us, on `channel`
  region = 5,         // the file of a region of the sender's memory
  region_gone = 6,    // the sender freed that region
  sparse_region = 7,  // the file of a region that is mapped piece by piece
};

// Plain data; both sides run the same build of one job, so that byte order is not a question.
struct Message {
  std::uint32_t magic = kMagic;
  MessageKind kind = MessageKind::hello;
  Rank from = 0;
  std::int32_t channel = 0;
  std::uint64_t context = 0;
  std::uint64_t bytes = 0;  // of the region
  std::uint32_t region = 0;
  Rank to = 0;                              // of a message that carries a proof
  std::array<std::uint8_t, 16> nonce = {};  // of a question, and of its answer
  std::array<std::uint8_t, 32> proof = {};

  static constexpr std::uint32_t kMagic = 0x33737474;  // "tts3"; the digit is the version
};

// How a rank can be reached, as its peers learn it in the exchange.
struct Address {
  std::string host;   // two processes can connect only if these are equal
  std::string token;  // 32 hexadecimal digits, random: the name of the listener
  int pid = 0;
  std::string processes = "-";  // the process namespace in which `pid` counts, if known
  std::uint64_t token_at = 0;   // where the token lies in that process's memory, for attach.hpp

  std::string to_text() const;
  static Result<Address> parse(std::string_view text);
};

// This process on this host, with a fresh token.
Address make_address();

// True unless `process`, as `ours` sees it, is certainly not that of `theirs`. Process numbers of
// different namespaces cannot be compared.
bool is_process(const Address& theirs, const Address& ours, pid_t process);

// Fills a question's nonce.
void refresh(Message& question);

// The proof that goes into a message to the listener called `token`, or from it.
std::array<std::uint8_t, 32> prove(const Message& message, std::string_view token,
                                   const std::string& secret);

// True when the message carries the right proof. Cost: independent of where a wrong one differs.
bool proven(const Message& message, std::string_view token, const std::string& secret);

// A listening socket under that name. It and all that it accepts never block.
Result<Descriptor> listen_at(const std::string& token);

// The next connection, or a closed descriptor when there is none. One from another user is dropped.
Descriptor accept_from(const Descriptor& listener);

// The number of the process at the other end, as the kernel says; 0 where we do not see it.
pid_t process_number_behind(const Descriptor& socket);

// The process at the other end, as something that poll(2) finds readable once it has ended: a
// forked child of it may keep the socket open. Closed where the kernel does not tell.
Descriptor process_behind(const Descriptor& socket);

// A connection to that name: a closed descriptor when the listener has too many waiting (try
// again). Errors: peer_lost when nobody listens, or somebody else does; system_error.
Result<Descriptor> connect_to(const std::string& token);

// Sends one message, with `file` unless negative. False when the socket is full (try again).
// Errors: peer_lost.
Result<bool> send_message(const Descriptor& socket, const Message& message, int file = -1);

// What a socket has for us.
struct Received {
  enum class Kind { message, nothing, hang_up, nonsense };
  Kind kind = Kind::nothing;
  Message message;
  Descriptor file;
};
Received receive_message(const Descriptor& socket);

}  // namespace tutti::transport::shm

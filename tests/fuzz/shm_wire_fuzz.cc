// Addresses come from the ranks of the job; messages come from any process of the same user that
// connects to a rank's socket, each with up to some descriptors.
//
// Beyond not crashing: an address that parses prints to one that parses to the same; a message is
// taken only whole and within its ranges; a proof is that of exactly one message; no descriptor
// stays open.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fuzz.hpp"
#include "transport/shm/doorman.hpp"
#include "transport/shm/wire.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::transport::shm;

void check_address(std::string_view text) {
  const Result<Address> address = Address::parse(text);
  if (!address.ok()) return;
  const Result<Address> again = Address::parse(address->to_text());
  TUTTI_ASSERT(again.ok() && again->host == address->host && again->token == address->token &&
                   again->pid == address->pid && again->processes == address->processes,
               "an address survives the way there and back");
  TUTTI_ASSERT(address->token.size() == 32, "a token fits into a socket's name");
}

void send(int socket, std::string_view bytes, std::size_t files) {
  std::array<int, 8> numbers{};
  numbers.fill(STDIN_FILENO);
  std::string copy(bytes);
  iovec data = {.iov_base = copy.data(), .iov_len = copy.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof numbers)] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (files > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(files * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files * sizeof(int));
    std::memcpy(CMSG_DATA(rights), numbers.data(), files * sizeof(int));
  }
  static_cast<void>(::sendmsg(socket, &header, MSG_NOSIGNAL));
}

// The lowest free descriptor: as before when nothing stayed open.
int next_descriptor() {
  const int number = ::dup(STDIN_FILENO);
  ::close(number);
  return number;
}

// Rank 1 of three, all of them this process.
void check_door(const Message& message, bool right) {
  const Address address{.host = "h", .token = "token", .pid = 17, .processes = "4"};
  Doorman doorman(1, 7, "s3cret", {address, address, address});
  const bool expected = right && message.kind == MessageKind::hello && message.to == 1 &&
                        message.context == 7 && (message.from == 0 || message.from == 2);
  TUTTI_ASSERT(!doorman.admits(message, 18), "another process is another process");
  TUTTI_ASSERT(doorman.admits(message, 17) == expected, "only who proves who it is comes in");
  TUTTI_ASSERT(!doorman.admits(message, 17), "and only once");
}

void check_message(Decisions decisions) {
  static int pair[2] = {-1, -1};
  if (pair[0] < 0) {
    const int made = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair);
    TUTTI_ASSERT(made == 0, "a pair of sockets");
  }
  static const Descriptor ours(pair[0]);
  const std::size_t files = decisions.number<std::uint8_t>() % 9;
  const std::string_view bytes = decisions.rest();
  if (bytes.empty()) return;  // would read as the end
  const int before = files > 0 ? next_descriptor() : 0;
  send(pair[1], bytes, files);
  {
    const Received received = receive_message(ours);
    TUTTI_ASSERT(
        received.kind == Received::Kind::message || received.kind == Received::Kind::nonsense,
        "a datagram is a message or nonsense");
    if (received.kind == Received::Kind::message) {
      const Message& message = received.message;
      TUTTI_ASSERT(bytes.size() == sizeof(Message) && message.from >= 0 && message.channel >= 0,
                   "a message is whole and in range");
      const auto right = prove(message, "token", "s3cret");
      TUTTI_ASSERT(proven(message, "token", "s3cret") == (right == message.proof),
                   "one proof for one message");
      check_door(message, right == message.proof);
    }
  }
  if (files > 0) TUTTI_ASSERT(next_descriptor() == before, "no descriptor stays open");
}

std::string bytes_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

}  // namespace

std::size_t input_bytes_max() { return 640; }

void run(std::string_view input) {
  const AllocationLimit limit(16 * input.size() + 16 * 1024);
  Decisions decisions(input);
  if (decisions.number<std::uint8_t>() % 2 == 0)
    check_address(decisions.rest());
  else
    check_message(decisions);
}

std::vector<std::string> seeds() {
  Message hello{.kind = MessageKind::hello, .from = 2, .context = 7, .to = 1};
  hello.proof = prove(hello, "token", "s3cret");
  const Message region{.kind = MessageKind::region, .from = 1, .bytes = 4096, .region = 3};
  const Address address{.host = "0f0e-11/4026531840",
                        .token = std::string(32, 'a'),
                        .pid = 17,
                        .processes = "4026531836"};
  const std::string none(1, '\0');
  return {none + address.to_text(), "\1" + none + bytes_of(hello), "\1\1" + bytes_of(region),
          "\1\5" + bytes_of(region), "\1" + none + bytes_of(hello) + "x"};
}

}  // namespace tutti::fuzz

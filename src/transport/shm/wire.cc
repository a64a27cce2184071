// wire.cc: Unix sockets and proofs behind wire.hpp.
#include "transport/shm/wire.hpp"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <span>

namespace tutti::transport::shm {
namespace {

constexpr std::size_t kTokenDigits = 32;
constexpr std::size_t kAddressTextMax = 512;
constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

struct SocketName {
  sockaddr_un address = {};
  socklen_t length = 0;
};

// The abstract namespace: the name begins with a zero byte and is as long as it is.
SocketName socket_name(const std::string& token) {
  SocketName name;
  const std::string text = "tutti-" + token;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

ucred credentials_behind(const Descriptor& socket) {
  ucred peer = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
  socklen_t length = sizeof peer;
  getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer;
}

bool same_user(const Descriptor& socket) { return credentials_behind(socket).uid == geteuid(); }

bool is_token(std::string_view text) {
  return text.size() == kTokenDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The next word of `text`, which it loses.
std::string_view next_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <typename Number>
bool parse_whole(std::string_view word, Number& number, int base) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  return error == std::errc() && end == word.data() + word.size();
}

// Abstract names are visible within one network namespace of one running kernel.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    boot = name;
  }
  struct stat network = {};
  if (stat("/proc/self/ns/net", &network) != 0) return boot;
  return fmt::format("{}/{}", boot, network.st_ino);
}

// Process numbers mean something within one namespace only.
std::string process_namespace() {
  struct stat processes = {};
  if (stat("/proc/self/ns/pid", &processes) != 0) return "-";
  return std::to_string(processes.st_ino);
}

bool plausible(const Message& message) {
  return message.magic == Message::kMagic && message.kind >= MessageKind::ask_board &&
         message.kind <= MessageKind::sparse_region && message.from >= 0 && message.to >= 0 &&
         message.channel >= 0;
}

}  // namespace

std::string Address::to_text() const {
  return fmt::format("shm3 {} {} {} {} {:x}", host, token, pid, processes, token_at);
}

Result<Address> Address::parse(std::string_view text) {
  const Status bad(StatusCode::corrupt_data, "not the address of a rank that uses shared memory");
  if (text.size() > kAddressTextMax || next_word(text) != "shm3") return bad;
  Address address;
  address.host = next_word(text);
  address.token = next_word(text);
  const bool pid = parse_whole(next_word(text), address.pid, 10);
  address.processes = next_word(text);
  const bool token_at = parse_whole(next_word(text), address.token_at, 16);
  if (address.host.empty() || !is_token(address.token) || !pid || address.processes.empty() ||
      !token_at || !text.empty())
    return bad;
  return address;
}

Address make_address() {
  std::array<unsigned char, kTokenDigits / 2> random = {};
  randombytes_buf(random.data(), random.size());
  char token[kTokenDigits + 1] = {};
  sodium_bin2hex(token, sizeof token, random.data(), random.size());
  return {
      .host = host_identity(), .token = token, .pid = getpid(), .processes = process_namespace()};
}

bool is_process(const Address& theirs, const Address& ours, pid_t process) {
  if (theirs.processes != ours.processes || ours.processes == "-") return true;
  return process == theirs.pid;
}

void refresh(Message& question) { randombytes_buf(question.nonce.data(), question.nonce.size()); }

std::array<std::uint8_t, 32> prove(const Message& message, std::string_view token,
                                   const std::string& secret) {
  Message unproven = message;
  unproven.proof = {};
  std::array<std::uint8_t, 32> key = {};
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                     secret.size(), nullptr, 0);
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), unproven.proof.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&unproven),
                            sizeof unproven);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(token.data()),
                            token.size());
  crypto_generichash_final(&state, unproven.proof.data(), unproven.proof.size());
  return unproven.proof;
}

bool proven(const Message& message, std::string_view token, const std::string& secret) {
  const std::array<std::uint8_t, 32> expected = prove(message, token, secret);
  return sodium_memcmp(expected.data(), message.proof.data(), expected.size()) == 0;
}

Result<Descriptor> listen_at(const std::string& token) {
  Descriptor listener(socket(AF_UNIX, kSocketType, 0));
  if (!listener.open()) return system_error("socket");
  const SocketName name = socket_name(token);
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  if (bind(listener.number(), address, name.length) != 0) return system_error("bind");
  if (listen(listener.number(), SOMAXCONN) != 0) return system_error("listen");
  return listener;
}

Descriptor accept_from(const Descriptor& listener) {
  while (true) {
    Descriptor socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket.open() || same_user(socket)) return socket;
  }
}

pid_t process_number_behind(const Descriptor& socket) { return credentials_behind(socket).pid; }

Descriptor process_behind(const Descriptor& socket) {
  const pid_t pid = credentials_behind(socket).pid;
  if (pid <= 0) return Descriptor();  // in a process namespace that we do not see
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

Result<Descriptor> connect_to(const std::string& token) {
  Descriptor connection(socket(AF_UNIX, kSocketType, 0));
  if (!connection.open()) return system_error("socket");
  const SocketName name = socket_name(token);
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  if (connect(connection.number(), address, name.length) != 0) {
    if (errno == EAGAIN || errno == EINTR) return Descriptor();
    if (errno == ECONNREFUSED) return Status(StatusCode::peer_lost, "its process is gone");
    return system_error("connect");
  }
  if (!same_user(connection))
    return Status(StatusCode::peer_lost, "its socket belongs to another user");
  return connection;
}

Result<bool> send_message(const Descriptor& socket, const Message& message, int file) {
  Message copy = message;
  iovec data = {.iov_base = &copy, .iov_len = sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  if (sendmsg(socket.number(), &header, MSG_NOSIGNAL) >= 0) return true;
  // Too many descriptors on their way counts as full.
  if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS || errno == ENOBUFS) return false;
  return Status(StatusCode::peer_lost, std::string("its socket failed: ") + std::strerror(errno));
}

Received receive_message(const Descriptor& socket) {
  Received received;
  iovec data = {.iov_base = &received.message, .iov_len = sizeof received.message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t length = recvmsg(socket.number(), &header, MSG_CMSG_CLOEXEC);
  if (length < 0) {
    const bool nothing = errno == EAGAIN || errno == EINTR;
    received.kind = nothing ? Received::Kind::nothing : Received::Kind::hang_up;
    return received;
  }
  // A message takes one along; others that came with it are closed.
  auto descriptors = base::take_descriptors(header);
  if (!descriptors.empty()) received.file = std::move(descriptors.front());
  const bool whole = length == static_cast<ssize_t>(sizeof(Message)) &&
                     (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (length == 0) {
    received.kind = Received::Kind::hang_up;
  } else {
    received.kind =
        whole && plausible(received.message) ? Received::Kind::message : Received::Kind::nonsense;
  }
  return received;
}

}  // namespace tutti::transport::shm

// sockets.cc: see sockets.hpp.
#include "kit/net_plugin/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace kit::net {
namespace {

constexpr std::uint32_t kMagic = 0x74756b69;
constexpr int kHostPointers = 1;

std::atomic<int> objects{0};

// What lies in a handle. `begun` is a note of the one who connects.
struct Place {
  std::uint32_t magic = kMagic;
  std::uint16_t port = 0;
  std::uint16_t calls = 0;
  Connection* begun = nullptr;
};

// What lies behind it up to the end, for a whole handle to travel.
constexpr std::size_t kHandleBytes = 128;
constexpr unsigned char kFilling = 0x5a;

bool filled(const void* handle) {
  const auto* const bytes = static_cast<const unsigned char*>(handle);
  return std::all_of(bytes + sizeof(Place), bytes + kHandleBytes,
                     [](unsigned char each) { return each == kFilling; });
}

int number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int make_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

// Where nothing lies.
void* nowhere() { return reinterpret_cast<void*>(0x10); }

void set_prompt(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

int open_objects() { return objects.load(); }

Counted::Counted() { objects.fetch_add(1); }
Counted::~Counted() { objects.fetch_sub(1); }

Faults read_faults() {
  return {number_of("KIT_NET_NULL_EVERY"),    static_cast<std::size_t>(number_of("KIT_NET_BYTES")),
          number_of("KIT_NET_CONNECT_CALLS"), number_of("KIT_NET_FAIL_AFTER"),
          number_of("KIT_NET_REFUSE"),        number_of("KIT_NET_DEAF") != 0,
          number_of("KIT_NET_EXCESS")};
}

Connection::~Connection() {
  if (descriptor >= 0) ::close(descriptor);
}

Listener::~Listener() {
  if (descriptor >= 0) ::close(descriptor);
}

// ---- Messages ----

int Connection::start(void* data, std::size_t bytes, int tag, void* registration, void** request) {
  *request = nullptr;
  auto* const memory = static_cast<Registration*>(registration);
  auto* const from = static_cast<std::byte*>(data);
  if (registrations.count(memory) == 0 || from < memory->data ||
      from + bytes > memory->data + memory->bytes)
    return kInvalidUsage;
  if (faults.deaf && !sends && peer_hung_up()) return kSystemError;
  started += 1;
  if (faults.null_every > 0 && started % faults.null_every == 0) return kSuccess;
  const auto free = std::find_if(requests.begin(), requests.end(),
                                 [](const Request& each) { return !each.used; });
  if (free == requests.end()) return kSuccess;
  *free = Request{};
  free->owner = this;
  free->data = from;
  free->bytes = bytes;
  free->tag = static_cast<std::uint32_t>(tag);
  free->used = true;
  free->fails = faults.fail_after > 0 && started > faults.fail_after;
  free->excess = started > 1 ? faults.excess : 0;
  if (sends) free->header = bytes | static_cast<std::uint64_t>(free->tag) << 32;
  queue.push_back(&*free);
  *request = &*free;
  return kSuccess;
}

bool Connection::peer_hung_up() const {
  pollfd asked{descriptor, POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) == 1;
}

// Bytes moved, 0: not now, -1: never again.
long Connection::transfer(std::byte* at, std::size_t bytes) const {
  const ssize_t moved =
      sends ? ::send(descriptor, at, bytes, MSG_NOSIGNAL) : ::recv(descriptor, at, bytes, 0);
  if (moved > 0) return moved;
  if (moved == 0) return -1;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

int Connection::advance_one(Request& request, std::size_t& budget) {
  constexpr std::size_t kHeader = sizeof(request.header);
  while (!request.done && budget > 0) {
    const bool in_header = request.moved < kHeader;
    std::byte* const at = in_header ? reinterpret_cast<std::byte*>(&request.header) + request.moved
                                    : request.data + (request.moved - kHeader);
    const std::size_t end = in_header ? kHeader : kHeader + request.bytes;
    const std::size_t bytes = std::min(end - request.moved, budget);
    const long moved = bytes == 0 ? 0 : transfer(at, bytes);
    if (moved < 0) return kSystemError;
    if (moved == 0 && bytes > 0) return kSuccess;
    request.moved += static_cast<std::size_t>(moved);
    budget -= static_cast<std::size_t>(moved);
    if (!sends && in_header && request.moved == kHeader) {
      const std::size_t announced = request.header & 0xffffffff;
      if (announced > request.bytes || request.header >> 32 != request.tag) return kInvalidUsage;
      request.bytes = announced;
    }
    request.done = request.moved == kHeader + request.bytes;
  }
  return kSuccess;
}

// In the order in which they were started.
int Connection::advance() {
  std::size_t budget = faults.bytes > 0 ? faults.bytes : ~std::size_t{0};
  while (!queue.empty()) {
    const int code = advance_one(*queue.front(), budget);
    if (code != kSuccess) return code;
    if (!queue.front()->done) return kSuccess;
    queue.pop_front();
  }
  return kSuccess;
}

int Connection::test(Request& request, int* done, int* bytes) {
  *done = 0;
  if (!request.used) return kInvalidUsage;
  if (request.fails) return kSystemError;
  // What came before the end of a connection has come.
  const int code = request.done ? kSuccess : advance();
  if (!request.done) return code;
  *done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(request.bytes) + request.excess;
  request.used = false;
  return kSuccess;
}

// ---- Connections ----

int listen(void* handle, void** listener) {
  auto made = std::make_unique<Listener>();
  made->descriptor = make_socket();
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof(address);
  if (made->descriptor < 0 ||
      ::bind(made->descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(made->descriptor, 16) != 0 ||
      ::getsockname(made->descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return kSystemError;
  made->calls_left = read_faults().connect_calls;
  Place place;
  place.port = ntohs(address.sin_port);
  std::memset(handle, kFilling, kHandleBytes);
  std::memcpy(handle, &place, sizeof(place));
  *listener = made.release();
  return kSuccess;
}

int connect(void* handle, void** sender) {
  *sender = nullptr;
  Place place;
  std::memcpy(&place, handle, sizeof(place));
  if (place.magic != kMagic || !filled(handle)) return kInvalidUsage;
  const Faults faults = read_faults();
  if (faults.refuse == kRefusesConnect) {
    *sender = nowhere();
    return kSystemError;
  }
  if (place.begun == nullptr) {
    place.begun = new Connection;
    place.begun->sends = true;
    place.begun->faults = faults;
    place.begun->descriptor = make_socket();
  }
  Connection& begun = *place.begun;
  const sockaddr_in address = loopback(place.port);
  const int connected =
      ::connect(begun.descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = connected == 0 ? EISCONN : errno;
  const bool pending = error == EINPROGRESS || error == EALREADY || error == EINTR;
  if (error != EISCONN && !pending) {
    delete place.begun;
    place.begun = nullptr;
    std::memcpy(handle, &place, sizeof(place));
    return kSystemError;
  }
  place.calls = static_cast<std::uint16_t>(place.calls + 1);
  if (!pending && place.calls > faults.connect_calls) {
    set_prompt(begun.descriptor);
    *sender = std::exchange(place.begun, nullptr);
  }
  std::memcpy(handle, &place, sizeof(place));
  return kSuccess;
}

int accept(void* listener, void** receiver) {
  *receiver = nullptr;
  auto& from = *static_cast<Listener*>(listener);
  if (from.calls_left > 0) {
    from.calls_left -= 1;
    return kSuccess;
  }
  const int descriptor = ::accept4(from.descriptor, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) return errno == EAGAIN || errno == EINTR ? kSuccess : kSystemError;
  auto made = std::make_unique<Connection>();
  made->descriptor = descriptor;
  made->faults = read_faults();
  if (made->faults.refuse == kRefusesAccept) {
    *receiver = nowhere();
    return kSystemError;
  }
  *receiver = made.release();
  return kSuccess;
}

int register_memory(void* connection, void* data, std::size_t bytes, int type,
                    void** registration) {
  if (type != kHostPointers) return kInvalidUsage;
  if (static_cast<Connection*>(connection)->faults.refuse == kRefusesMemory) return kSystemError;
  auto made = std::make_unique<Registration>();
  made->data = static_cast<std::byte*>(data);
  made->bytes = bytes;
  static_cast<Connection*>(connection)->registrations.insert(made.get());
  *registration = made.release();
  return kSuccess;
}

int deregister_memory(void* connection, void* registration) {
  auto* const memory = static_cast<Registration*>(registration);
  if (static_cast<Connection*>(connection)->registrations.erase(memory) == 0) return kInvalidUsage;
  delete memory;
  return kSuccess;
}

int send(void* sender, void* data, std::size_t bytes, int tag, void* registration, void** request) {
  return static_cast<Connection*>(sender)->start(data, bytes, tag, registration, request);
}

int receive(void* receiver, int count, void** data, const std::size_t* bytes, const int* tags,
            void** registrations, void** request) {
  if (count != 1) return kInvalidUsage;
  return static_cast<Connection*>(receiver)->start(data[0], bytes[0], tags[0], registrations[0],
                                                   request);
}

int test(void* request, int* done, int* bytes) {
  auto& which = *static_cast<Request*>(request);
  return which.owner->test(which, done, bytes);
}

int close_connection(void* connection) {
  delete static_cast<Connection*>(connection);
  return kSuccess;
}

int close_listener(void* listener) {
  delete static_cast<Listener*>(listener);
  return kSuccess;
}

}  // namespace kit::net

extern "C" {
// For tests that see the library only.
[[gnu::visibility("default")]] int kit_net_open_objects() { return kit::net::open_objects(); }
}

// sockets.hpp: a small network over loopback TCP in the shape that net plugins have: non-blocking,
// requests that are tested until they are done. What its callers do wrong it finds out and reports
// as an error: memory that is not registered, requests tested twice, tags that differ.
//
// Misbehaves by environment variables, read whenever a connection is made; 0 or nothing: does not.
//   KIT_NET_NULL_EVERY     every so many requests, gives none although it could
//   KIT_NET_BYTES          moves at most so many bytes each time that a request is tested
//   KIT_NET_CONNECT_CALLS  so many calls of connect and accept say "not yet" first
//   KIT_NET_FAIL_AFTER     every request of a connection after so many fails
//   KIT_NET_REFUSE         1: accept, 2: connect, 3: registering fails; what the first two leave
//                          behind is the address of nothing
//   KIT_NET_DEAF           1: takes no request to receive once the peer has hung up, although what
//                          was asked for before can still be had
//   KIT_NET_EXCESS         of all requests but a connection's first, says that so many bytes more
//                          came than did
//
// Knows sockets; does not know the tables of the versions (tables.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

namespace kit::net {

inline constexpr int kSuccess = 0;
inline constexpr int kSystemError = 2;
inline constexpr int kInvalidUsage = 5;
inline constexpr std::size_t kRequestsMax = 32;

// What is there and not closed yet, in the whole process.
int open_objects();

// Counts itself.
class Counted {
 public:
  Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted();
};

struct Faults {
  int null_every = 0;
  std::size_t bytes = 0;
  int connect_calls = 0;
  int fail_after = 0;
  int refuse = 0;
  bool deaf = false;
  int excess = 0;
};
// What Faults::refuse says.
inline constexpr int kRefusesAccept = 1;
inline constexpr int kRefusesConnect = 2;
inline constexpr int kRefusesMemory = 3;
Faults read_faults();

struct Registration : Counted {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct Connection;

struct Request {
  Connection* owner = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;     // of the message; of room until its header has come
  std::size_t moved = 0;     // of the header and the message together
  std::uint64_t header = 0;  // length, and the tag above it
  std::uint32_t tag = 0;
  bool used = false;
  bool done = false;
  bool fails = false;
  int excess = 0;
};

// One direction: a sender or a receiver.
struct Connection : Counted {
  ~Connection();

  // Null in `request` where there is none to be had.
  int start(void* data, std::size_t bytes, int tag, void* registration, void** request);
  int test(Request& request, int* done, int* bytes);

  int descriptor = -1;
  bool sends = false;
  Faults faults;
  int started = 0;
  std::vector<Request> requests = std::vector<Request>(kRequestsMax);
  std::deque<Request*> queue;
  std::set<Registration*> registrations;

 private:
  int advance();
  int advance_one(Request& request, std::size_t& budget);
  long transfer(std::byte* at, std::size_t bytes) const;
  bool peer_hung_up() const;
};

struct Listener : Counted {
  ~Listener();
  int descriptor = -1;
  int calls_left = 0;
};

int listen(void* handle, void** listener);
int connect(void* handle, void** sender);
int accept(void* listener, void** receiver);
int register_memory(void* connection, void* data, std::size_t bytes, int type, void** registration);
int deregister_memory(void* connection, void* registration);
int send(void* sender, void* data, std::size_t bytes, int tag, void* registration, void** request);
int receive(void* receiver, int count, void** data, const std::size_t* bytes, const int* tags,
            void** registrations, void** request);
int test(void* request, int* done, int* bytes);
int close_connection(void* connection);
int close_listener(void* listener);

}  // namespace kit::net

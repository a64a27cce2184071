// v8.cc: the table of version 8.
#include "kit/net_plugin/tables.hpp"

namespace kit::net {
namespace {

int send_short(void* sender, void* data, int bytes, int tag, void* registration, void** request) {
  return send(sender, data, static_cast<std::size_t>(bytes), tag, registration, request);
}

int receive_short(void* receiver, int count, void** data, int* bytes, int* tags,
                  void** registrations, void** request) {
  const auto room = static_cast<std::size_t>(bytes[0]);
  return receive(receiver, count, data, &room, tags, registrations, request);
}

abi::NetV8 table_8() {
  auto made = table<abi::NetV8>();
  made.init = init_once;
  made.listen = listen_on;
  made.connect = connect_from;
  made.send = send_short;
  made.receive = receive_short;
  return made;
}

}  // namespace
}  // namespace kit::net

extern "C" {
[[gnu::visibility("default")]] kit::net::abi::NetV8 ncclNetPlugin_v8 = kit::net::table_8();
}

// v9.cc: the table of version 9.
#include "kit/net_plugin/tables.hpp"

namespace kit::net {
namespace {

abi::NetV9 table_9() {
  auto made = table<abi::NetV9>();
  made.init = init_once;
  made.listen = listen_on;
  made.connect = connect_from;
  made.send = send_plain;
  made.receive = receive_plain;
  return made;
}

}  // namespace
}  // namespace kit::net

extern "C" {
[[gnu::visibility("default")]] kit::net::abi::NetV9 ncclNetPlugin_v9 = kit::net::table_9();
}

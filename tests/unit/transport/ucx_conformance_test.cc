// ucx_conformance_test.cc: UCX passes the suite of all transports (conformance_test.cc), over its
// sockets and its shared memory, and as between hosts.
#include <dlfcn.h>

#include "transport/checked/transport.hpp"
#include "unit/transport/ucx_worlds.hpp"

// Where UCX was opened, leaks are not looked for: it forgets some 100 bytes for each context that
// it makes, and clang 14's leak checker may crash on the living threads of a library opened late.
extern "C" int __lsan_is_turned_off() {
  return dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD) != nullptr ? 1 : 0;
}

namespace tutti::transport::conformance {
namespace {

World make_ucx(const TransportOptions& options) { return make_ucx_world(options, {}); }
World make_tcp(const TransportOptions& options) {
  return make_ucx_world(options, {.transports = "tcp"});
}
World make_shm(const TransportOptions& options) {
  return make_ucx_world(options, {.transports = "posix,cma,self"});
}
World make_remote(const TransportOptions& options) {
  return make_ucx_world(options, {.transports = "tcp", .all_remote = true});
}

World make_checked(const TransportOptions& options) {
  TransportOptions beneath = options;
  beneath.frame_bytes_max += kChecksumBytes;
  World world = make_ucx(beneath);
  for (auto& transport : world.transports)
    transport = make_checked_transport(std::move(transport), options.context);
  return world;
}

const TransportCase kUcxCases[] = {
    {.name = "ucx", .make = make_ucx},
    {.name = "ucx_tcp", .make = make_tcp},
    {.name = "ucx_shm", .make = make_shm},
    {.name = "ucx_remote", .make = make_remote},
    {.name = "ucx_checked", .make = make_checked},
};

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance, testing::ValuesIn(kUcxCases),
                         [](const auto& shown) { return shown.param.name; });

}  // namespace
}  // namespace tutti::transport::conformance

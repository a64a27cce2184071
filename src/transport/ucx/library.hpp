// library.hpp: UCX's functions, found in libucp.so.0 at run time; their types are those of the
// headers that this was built with.
//
// Knows dlopen and UCX's names; does not know what they are called for.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "base/log.hpp"

namespace tutti::transport::ucx {

struct Functions {
  decltype(&::ucp_get_version) get_version = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_context_query) context_query = nullptr;
  decltype(&::ucp_mem_map) mem_map = nullptr;
  decltype(&::ucp_mem_unmap) mem_unmap = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx = nullptr;
  decltype(&::ucp_am_data_release) am_data_release = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;
};

// The library, or why there is none: with what to install.
struct Library {
  const Functions* functions = nullptr;
  std::string error;
};

// Looks in `file`; it stays open, because UCX has threads and handlers of its own.
Library find_library_in(const char* file);

// The library of this process; looked for once. Threading: any thread.
const Library& library();

// UCX writes to stdout, which is the program's. So its errors and warnings become ours at level
// info (those that matter to a caller reach it as a Status), unless the user has said with
// UCX_LOG_LEVEL or UCX_LOG_FILE how they are wanted. One level for the process: UCX hands us no
// pointer of ours.
void set_log_level(base::LogLevel level);

}  // namespace tutti::transport::ucx

// library.cc: see library.hpp.
#include "transport/ucx/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ucs/debug/log_def.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace tutti::transport::ucx {
namespace {

constexpr const char* kFile = "libucp.so.0";
// UCX refuses those who were built with newer headers than it has.
constexpr unsigned kMajor = UCP_API_MAJOR;
constexpr unsigned kMinorMin = UCP_API_MINOR;

Library not_found(const char* file, const std::string& why) {
  return {nullptr, fmt::format("UCX cannot be used: {}: {}; install UCX {}.{} or later (Debian and "
                               "Ubuntu: apt install libucx0), or use TUTTI_TRANSPORT=tcp",
                               file, why, kMajor, kMinorMin)};
}

// Looks functions up, and remembers the first that is missing.
class Loader {
 public:
  explicit Loader(void* library) : library_(library) {}
  template <typename Function>
  void operator()(Function& place, const char* name) {
    place = reinterpret_cast<Function>(::dlsym(library_, name));
    if (place == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

void load_process(Loader& load, Functions& f) {
  load(f.get_version, "ucp_get_version");
  load(f.config_read, "ucp_config_read");
  load(f.config_modify, "ucp_config_modify");
  load(f.config_release, "ucp_config_release");
  load(f.init_version, "ucp_init_version");
  load(f.cleanup, "ucp_cleanup");
  load(f.context_query, "ucp_context_query");
  load(f.mem_map, "ucp_mem_map");
  load(f.mem_unmap, "ucp_mem_unmap");
  load(f.status_string, "ucs_status_string");
}

void load_worker(Loader& load, Functions& f) {
  load(f.worker_create, "ucp_worker_create");
  load(f.worker_destroy, "ucp_worker_destroy");
  load(f.worker_get_address, "ucp_worker_get_address");
  load(f.worker_release_address, "ucp_worker_release_address");
  load(f.worker_set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  load(f.worker_get_efd, "ucp_worker_get_efd");
  load(f.worker_arm, "ucp_worker_arm");
  load(f.worker_progress, "ucp_worker_progress");
}

void load_messages(Loader& load, Functions& f) {
  load(f.ep_create, "ucp_ep_create");
  load(f.ep_close_nbx, "ucp_ep_close_nbx");
  load(f.ep_flush_nbx, "ucp_ep_flush_nbx");
  load(f.tag_send_nbx, "ucp_tag_send_nbx");
  load(f.tag_recv_nbx, "ucp_tag_recv_nbx");
  load(f.am_send_nbx, "ucp_am_send_nbx");
  load(f.am_recv_data_nbx, "ucp_am_recv_data_nbx");
  load(f.am_data_release, "ucp_am_data_release");
  load(f.request_check_status, "ucp_request_check_status");
  load(f.request_cancel, "ucp_request_cancel");
  load(f.request_free, "ucp_request_free");
}

std::atomic<base::LogLevel>& log_level() {
  static std::atomic<base::LogLevel> level{base::LogLevel::warn};
  return level;
}

__attribute__((format(printf, 6, 0))) ucs_log_func_rc_t write_log(const char*, unsigned,
                                                                  const char*, ucs_log_level_t line,
                                                                  const ucs_log_component_config_t*,
                                                                  const char* format,
                                                                  va_list arguments) {
  constexpr std::size_t kLineBytes = 1024;
  const base::Log log(log_level().load(std::memory_order_relaxed), "UCX");
  const bool fatal = line == UCS_LOG_LEVEL_FATAL;
  if (!log.says(fatal ? base::LogLevel::error : base::LogLevel::info)) return UCS_LOG_FUNC_RC_STOP;
  char text[kLineBytes];
  std::vsnprintf(text, sizeof(text), format, arguments);
  if (fatal)
    log.error(text);
  else
    log.info(text);
  return UCS_LOG_FUNC_RC_STOP;
}

void take_over_log(void* library) {
  if (std::getenv("UCX_LOG_LEVEL") != nullptr || std::getenv("UCX_LOG_FILE") != nullptr) return;
  const auto push =
      reinterpret_cast<decltype(&::ucs_log_push_handler)>(::dlsym(library, "ucs_log_push_handler"));
  if (push != nullptr) push(write_log);
}

}  // namespace

Library find_library_in(const char* file) {
  void* const opened = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const error = ::dlerror();
    return not_found(file, error != nullptr ? error : "it cannot be opened");
  }
  auto* const functions = new Functions;  // as long as the library: for ever
  Loader load(opened);
  load_process(load, *functions);
  load_worker(load, *functions);
  load_messages(load, *functions);
  std::string why;
  if (!load.missing().empty()) {
    why = fmt::format("it has no {}", load.missing());
  } else {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    functions->get_version(&major, &minor, &release);
    if (major == kMajor && minor >= kMinorMin) {
      take_over_log(opened);
      return {functions, {}};
    }
    why = fmt::format("it is version {}.{}", major, minor);
  }
  delete functions;
  return not_found(file, why);
}

void set_log_level(base::LogLevel level) { log_level().store(level, std::memory_order_relaxed); }

const Library& library() {
  static const Library found = find_library_in(kFile);
  return found;
}

}  // namespace tutti::transport::ucx

// worker.cc: see worker.hpp.
#include "transport/ucx/worker.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/fork.hpp"
#include "base/try.hpp"

namespace tutti::transport::ucx {
namespace {

// UCX's own default is 20 s, for which a rank would wait in vain.
constexpr const char* kKeepalive = "1s";

// The contexts of this process, by their transports.
struct Shared {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Context>> contexts;
  std::optional<std::uint32_t> generation;  // of the process that first had one
};

Shared& shared() {
  static Shared* const kept = new Shared;  // outlives whoever ends late
  return *kept;
}

Status settle(const Functions& f, ucp_config_t* config, const std::string& transports) {
  const auto set = [&](const char* name, const char* value) {
    const ucs_status_t status = f.config_modify(config, name, value);
    return status == UCS_OK ? Status() : ucx_failure(f, fmt::format("{}={}", name, value), status);
  };
  if (!transports.empty()) TUTTI_TRY(set("TLS", transports.c_str()));
  if (std::getenv("UCX_KEEPALIVE_INTERVAL") == nullptr)
    TUTTI_TRY(set("KEEPALIVE_INTERVAL", kKeepalive));
  // Else UCX 1.13 greets a distant peer before there is a connection (link.hpp); later ones may
  // not know the setting.
  f.config_modify(config, "RESOLVE_REMOTE_EP_ID", "n");
  return Status();
}

}  // namespace

Status ucx_failure(const Functions& functions, std::string_view what, ucs_status_t status) {
  return Status(StatusCode::system_error,
                fmt::format("UCX: {}: {}", what, functions.status_string(status)));
}

Result<std::shared_ptr<Context>> Context::make(const std::string& transports) {
  const Functions& f = *library().functions;
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = f.config_read(nullptr, nullptr, &config); status != UCS_OK)
    return ucx_failure(f, "ucp_config_read", status);
  Status settled = settle(f, config, transports);
  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  // Nothing one-sided: nobody can write into this process but where it receives.
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  parameters.mt_workers_shared = 1;
  ucp_context_h handle = nullptr;
  if (settled.ok()) {
    const ucs_status_t status =
        f.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &handle);
    if (status != UCS_OK)
      settled = ucx_failure(f, "ucp_init", status).with_context("TUTTI_LOG=info says more");
  }
  f.config_release(config);
  TUTTI_TRY(settled);
  return std::shared_ptr<Context>(new Context(f, handle));
}

Result<std::shared_ptr<Context>> Context::get(const std::string& transports) {
  const Library& found = library();
  if (found.functions == nullptr) return Status(StatusCode::unsupported, found.error);
  const std::lock_guard lock(shared().mutex);
  auto& generation = shared().generation;
  if (!generation) generation = base::fork_generation();
  if (*generation != base::fork_generation())
    return Status(StatusCode::unsupported,
                  "this process was forked from one that used UCX, whose threads it has not; fork "
                  "before the first communicator, start a new program, or use "
                  "TUTTI_TRANSPORT=tcp");
  std::weak_ptr<Context>& place = shared().contexts[transports];
  if (auto context = place.lock()) return context;
  auto made = make(transports);
  if (made.ok()) place = *made;
  return made;
}

Context::~Context() { f_.cleanup(handle_); }

bool Context::knows(ucs_memory_type_t type) const {
  ucp_context_attr_t attributes = {};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return f_.context_query(handle_, &attributes) == UCS_OK &&
         (attributes.memory_types >> type & 1U) != 0;
}

Result<std::unique_ptr<Worker>> Worker::make(std::shared_ptr<Context> context,
                                             ucp_am_recv_callback_t receiver, void* argument) {
  auto worker = std::unique_ptr<Worker>(new Worker(std::move(context)));
  TUTTI_TRY(worker->start(receiver, argument));
  TUTTI_TRY(worker->learn_address());
  return worker;
}

Status Worker::start(ucp_am_recv_callback_t receiver, void* argument) {
  const Functions& f = functions();
  ucp_worker_params_t parameters = {};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = f.worker_create(context_->handle(), &parameters, &handle_);
  if (status != UCS_OK) return ucx_failure(f, "ucp_worker_create", status);
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.cb = receiver;
  handler.arg = argument;
  status = f.worker_set_am_recv_handler(handle_, &handler);
  if (status != UCS_OK) return ucx_failure(f, "ucp_worker_set_am_recv_handler", status);
  status = f.worker_get_efd(handle_, &event_descriptor_);
  return status == UCS_OK ? Status() : ucx_failure(f, "ucp_worker_get_efd", status);
}

Status Worker::learn_address() {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  const ucs_status_t status = functions().worker_get_address(handle_, &address, &bytes);
  if (status != UCS_OK) return ucx_failure(functions(), "ucp_worker_get_address", status);
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  functions().worker_release_address(handle_, address);
  return Status();
}

void Worker::hear_knock() {
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.recv = on_knock;
  parameters.user_data = this;
  void* const request =
      functions().tag_recv_nbx(handle_, &knock_, sizeof(knock_), kKnockTag, 0, &parameters);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) hearing_ = request;
}

void Worker::on_knock(void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* worker) {
  Worker& self = *static_cast<Worker*>(worker);
  self.functions().request_free(request);
  self.hearing_ = nullptr;
}

Worker::~Worker() {
  if (hearing_ != nullptr) functions().request_cancel(handle_, hearing_);
  if (handle_ != nullptr) functions().worker_destroy(handle_);
}

}  // namespace tutti::transport::ucx

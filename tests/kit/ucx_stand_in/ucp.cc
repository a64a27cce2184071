// ucp.cc: a libucp.so.0 in front of the real one that claims to know CUDA, for the stand-in's
// devices (kit/cuda_stand_in), which is NOT CUDA: it takes their memory where a UCX that was built
// with CUDA would, and hands it on as what it is, memory of the host. What is not said to be a
// device's is handed on as it comes, and then nobody may read or write it.
//
// So tests see that Tutti tells UCX what memory is, everywhere. They see nothing of a network card.
#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <cstdio>
#include <cstdlib>

namespace {

template <class Function>
Function find(const char* name) {
  static void* const real = dlopen(TUTTI_REAL_UCP, RTLD_NOW | RTLD_LOCAL);
  void* const found = real != nullptr ? dlsym(real, name) : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "the stand-in for UCX finds no %s in " TUTTI_REAL_UCP "\n", name);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

// Where the stand-in for CUDA itself finds memory of a device; it is in the program already.
void* reach(const void* memory, std::size_t bytes) {
  using Reach = void* (*)(const void*, std::size_t);
  static void* const cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  static const auto ask =
      cuda != nullptr ? reinterpret_cast<Reach>(dlsym(cuda, "tutti_stand_in_reach")) : nullptr;
  return ask != nullptr ? ask(memory, bytes) : nullptr;
}

bool is_of_device(const ucp_request_param_t& parameters) {
  return (parameters.op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0 &&
         parameters.memory_type == UCS_MEMORY_TYPE_CUDA;
}

ucp_request_param_t of_host(const ucp_request_param_t& parameters) {
  ucp_request_param_t made = parameters;
  made.memory_type = UCS_MEMORY_TYPE_HOST;
  return made;
}

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && std::atoi(value) != 0;
}

}  // namespace

// A function that is handed on as it is.
#define TUTTI_FORWARD(result, name, parameters, arguments)   \
  result name parameters {                                   \
    static const auto real = find<decltype(&::name)>(#name); \
    return real arguments;                                   \
  }

#pragma GCC visibility push(default)
extern "C" {

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t* attributes) {
  static const auto real = find<decltype(&::ucp_context_query)>("ucp_context_query");
  const ucs_status_t status = real(context, attributes);
  if ((attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) != 0)
    attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
  return status;
}

// STAND_IN_UCX_NO_MAP=1: as where the system lets no network card at a GPU.
ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t* parameters,
                         ucp_mem_h* handle) {
  static const auto real = find<decltype(&::ucp_mem_map)>("ucp_mem_map");
  if (parameters->memory_type != UCS_MEMORY_TYPE_CUDA) return real(context, parameters, handle);
  ucp_mem_map_params_t made = *parameters;
  made.memory_type = UCS_MEMORY_TYPE_HOST;
  made.address = reach(parameters->address, parameters->length);
  if (made.address == nullptr || is_set("STAND_IN_UCX_NO_MAP")) return UCS_ERR_INVALID_ADDR;
  return real(context, &made, handle);
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void* header,
                                 size_t header_bytes, const void* buffer, size_t count,
                                 const ucp_request_param_t* parameters) {
  static const auto real = find<decltype(&::ucp_am_send_nbx)>("ucp_am_send_nbx");
  if (!is_of_device(*parameters))
    return real(endpoint, id, header, header_bytes, buffer, count, parameters);
  const ucp_request_param_t made = of_host(*parameters);
  return real(endpoint, id, header, header_bytes, reach(buffer, count), count, &made);
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* data, void* buffer, size_t count,
                                      const ucp_request_param_t* parameters) {
  static const auto real = find<decltype(&::ucp_am_recv_data_nbx)>("ucp_am_recv_data_nbx");
  if (!is_of_device(*parameters)) return real(worker, data, buffer, count, parameters);
  const ucp_request_param_t made = of_host(*parameters);
  return real(worker, data, reach(buffer, count), count, &made);
}

TUTTI_FORWARD(void, ucp_get_version, (unsigned* major, unsigned* minor, unsigned* release),
              (major, minor, release))
TUTTI_FORWARD(ucs_status_t, ucp_config_read,
              (const char* prefix, const char* file, ucp_config_t** config), (prefix, file, config))
TUTTI_FORWARD(ucs_status_t, ucp_config_modify,
              (ucp_config_t * config, const char* name, const char* value), (config, name, value))
TUTTI_FORWARD(void, ucp_config_release, (ucp_config_t * config), (config))
TUTTI_FORWARD(ucs_status_t, ucp_init_version,
              (unsigned major, unsigned minor, const ucp_params_t* parameters,
               const ucp_config_t* config, ucp_context_h* context),
              (major, minor, parameters, config, context))
TUTTI_FORWARD(void, ucp_cleanup, (ucp_context_h context), (context))
TUTTI_FORWARD(ucs_status_t, ucp_mem_unmap, (ucp_context_h context, ucp_mem_h handle),
              (context, handle))
TUTTI_FORWARD(ucs_status_t, ucp_worker_create,
              (ucp_context_h context, const ucp_worker_params_t* parameters, ucp_worker_h* worker),
              (context, parameters, worker))
TUTTI_FORWARD(void, ucp_worker_destroy, (ucp_worker_h worker), (worker))
TUTTI_FORWARD(ucs_status_t, ucp_worker_get_address,
              (ucp_worker_h worker, ucp_address_t** address, size_t* bytes),
              (worker, address, bytes))
TUTTI_FORWARD(void, ucp_worker_release_address, (ucp_worker_h worker, ucp_address_t* address),
              (worker, address))
TUTTI_FORWARD(ucs_status_t, ucp_worker_set_am_recv_handler,
              (ucp_worker_h worker, const ucp_am_handler_param_t* handler), (worker, handler))
TUTTI_FORWARD(ucs_status_t, ucp_worker_get_efd, (ucp_worker_h worker, int* file), (worker, file))
TUTTI_FORWARD(ucs_status_t, ucp_worker_arm, (ucp_worker_h worker), (worker))
TUTTI_FORWARD(unsigned, ucp_worker_progress, (ucp_worker_h worker), (worker))
TUTTI_FORWARD(ucs_status_t, ucp_ep_create,
              (ucp_worker_h worker, const ucp_ep_params_t* parameters, ucp_ep_h* endpoint),
              (worker, parameters, endpoint))
TUTTI_FORWARD(ucs_status_ptr_t, ucp_ep_close_nbx,
              (ucp_ep_h endpoint, const ucp_request_param_t* parameters), (endpoint, parameters))
TUTTI_FORWARD(ucs_status_ptr_t, ucp_ep_flush_nbx,
              (ucp_ep_h endpoint, const ucp_request_param_t* parameters), (endpoint, parameters))
TUTTI_FORWARD(ucs_status_ptr_t, ucp_tag_send_nbx,
              (ucp_ep_h endpoint, const void* buffer, size_t count, ucp_tag_t tag,
               const ucp_request_param_t* parameters),
              (endpoint, buffer, count, tag, parameters))
TUTTI_FORWARD(ucs_status_ptr_t, ucp_tag_recv_nbx,
              (ucp_worker_h worker, void* buffer, size_t count, ucp_tag_t tag, ucp_tag_t mask,
               const ucp_request_param_t* parameters),
              (worker, buffer, count, tag, mask, parameters))
TUTTI_FORWARD(void, ucp_am_data_release, (ucp_worker_h worker, void* data), (worker, data))
TUTTI_FORWARD(ucs_status_t, ucp_request_check_status, (void* request), (request))
TUTTI_FORWARD(void, ucp_request_cancel, (ucp_worker_h worker, void* request), (worker, request))
TUTTI_FORWARD(void, ucp_request_free, (void* request), (request))
TUTTI_FORWARD(const char*, ucs_status_string, (ucs_status_t status), (status))

}  // extern "C"
#pragma GCC visibility pop

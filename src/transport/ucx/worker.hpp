// worker.hpp: UCX's objects as one rank needs them: a context that the process shares, and a worker
// of the rank's own, with the address at which others reach it.
//
// Knows UCX; does not know ranks, frames or who is called.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "transport/ucx/library.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::ucx {

// UCX's devices as this process opened them.
class Context {
 public:
  // The one of this process that has those transports (as UCX_TLS; empty: that variable), made when
  // nobody else has it. Threading: any thread.
  // Errors  unsupported: no library, or a child forked from a process that had one; system_error.
  static Result<std::shared_ptr<Context>> get(const std::string& transports);

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Functions& functions() const { return f_; }
  ucp_context_h handle() const { return handle_; }
  // Whether UCX moves such memory at all.
  bool knows(ucs_memory_type_t type) const;

 private:
  Context(const Functions& f, ucp_context_h handle) : f_(f), handle_(handle) {}
  static Result<std::shared_ptr<Context>> make(const std::string& transports);

  const Functions& f_;
  ucp_context_h handle_;
};

// "ucp_init: Input/output error"
Status ucx_failure(const Functions& functions, std::string_view what, ucs_status_t status);

class Worker {
 public:
  // `receiver` is called with `argument` for each message, from within progress().
  static Result<std::unique_ptr<Worker>> make(std::shared_ptr<Context> context,
                                              ucp_am_recv_callback_t receiver, void* argument);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const Functions& functions() const { return context_->functions(); }
  const std::shared_ptr<Context>& context() const { return context_; }
  ucp_worker_h handle() const { return handle_; }
  const std::string& address() const { return address_; }

  // Readable once something happens after arm().
  int event_descriptor() const { return event_descriptor_; }
  // False: something has happened already, or cannot be waited for.
  bool arm() { return functions().worker_arm(handle_) == UCS_OK; }
  // Moves bytes and calls back. True when anything happened.
  bool progress() {
    if (hearing_ == nullptr) [[unlikely]]
      hear_knock();
    return functions().worker_progress(handle_) != 0;
  }

  // Knocks (link.hpp) are taken and forgotten, whoever they come from.
  static constexpr ucp_tag_t kKnockTag = 0;
  // Which active messages are ours, to UCX.
  static constexpr unsigned kMessageId = 0;

 private:
  explicit Worker(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  Status start(ucp_am_recv_callback_t receiver, void* argument);
  Status learn_address();
  void hear_knock();
  static void on_knock(void* request, ucs_status_t status, const ucp_tag_recv_info_t* what,
                       void* worker);

  std::shared_ptr<Context> context_;
  ucp_worker_h handle_ = nullptr;
  std::string address_;
  int event_descriptor_ = -1;
  void* hearing_ = nullptr;  // the request for the next knock
  char knock_ = 0;
};

}  // namespace tutti::transport::ucx

// ucx_puppet.hpp: a rank 1 that is a bare worker of UCX, to say what no Tutti says to a rank 0 that
// is real.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/ucx/death_watch.hpp"
#include "transport/ucx/ring.hpp"
#include "transport/ucx/transport.hpp"
#include "transport/ucx/wire.hpp"
#include "transport/ucx/worker.hpp"

namespace tutti::transport::ucx {

inline constexpr const char* kShm = "posix,cma,self";

inline TransportOptions ranks(int size) {
  TransportOptions options;
  options.size = size;
  options.frame_bytes_max = 4096;
  options.queue_bytes = 16384;
  options.context = 7;
  options.job_secret = "s3cret";
  return options;
}

struct Puppet {
  explicit Puppet(const std::string& transports = kShm, pid_t process = ::getpid(),
                  bool remote = false)
      : worker(*Worker::make(*Context::get(transports), drop, nullptr)) {
    Card card;
    card.address = worker->address();
    card.nonce = std::string(kNonceBytes, 'p');
    card.host = remote ? "elsewhere" : process_world();
    card.process = static_cast<std::uint32_t>(process);
    card.frame_bytes_max = options.frame_bytes_max;
    card.ring_bytes = ring_bytes(options.queue_bytes, options.frame_bytes_max);
    card.channel_count = 1;
    card.context = options.context;
    const auto exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      rank0_card = parse_card(mine).value();
      return std::vector<std::string>{mine, encode_card(card)};
    };
    rank0 = std::move(make_ucx_transport(options, {.transports = transports}, exchange)).value();
    ucp_ep_params_t parameters = {};
    parameters.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    parameters.err_mode = remote ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    parameters.address = reinterpret_cast<const ucp_address_t*>(rank0_card.address.data());
    EXPECT_EQ(f().ep_create(worker->handle(), &parameters, &handle), UCS_OK);
    header.key = key_of({options.context, 1, 0}, Authenticator("s3cret"),
                        std::string(kNonceBytes, 'p'), rank0_card.nonce);
    header.kind = RecordKind::frame;
    header.from = 1;
    header.tag = 42;
  }

  static ucs_status_t drop(void*, const void*, std::size_t, void*, std::size_t,
                           const ucp_am_recv_param_t*) {
    return UCS_OK;
  }
  const Functions& f() const { return worker->functions(); }

  // UCX's request; null: it has left.
  void* begin(const RecordHeader& what, std::string_view payload, unsigned flags,
              std::size_t header_bytes = kHeaderBytes) {
    std::vector<char>& told = spoken.emplace_back(kHeaderBytes + kLentHeadBytesMax + 1, 'h');
    std::memcpy(told.data(), &what, kHeaderBytes);
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = flags;
    return f().am_send_nbx(handle, Worker::kMessageId, told.data(), header_bytes, payload.data(),
                           payload.size(), &parameters);
  }

  // Until it has left; true when it did without an error.
  bool say(const RecordHeader& what, std::string_view payload, unsigned flags = 0,
           std::size_t header_bytes = kHeaderBytes) {
    void* const request = begin(what, payload, flags, header_bytes);
    if (request == nullptr) return true;
    if (UCS_PTR_IS_ERR(request)) return false;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (f().request_check_status(request) == UCS_INPROGRESS &&
           std::chrono::steady_clock::now() < limit) {
      worker->progress();
      static_cast<void>(rank0->poll());
    }
    const ucs_status_t status = f().request_check_status(request);
    f().request_free(request);
    EXPECT_EQ(status, UCS_OK) << f().status_string(status);
    return status == UCS_OK;
  }
  bool receives(Endpoint& endpoint, Frame& frame) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!endpoint.peek(frame) && std::chrono::steady_clock::now() < limit) {
      worker->progress();
      EXPECT_TRUE(rank0->poll().ok());
    }
    return endpoint.peek(frame);
  }

  TransportOptions options = ranks(2);
  std::unique_ptr<Worker> worker;
  Card rank0_card;
  std::unique_ptr<Transport> rank0;
  ucp_ep_h handle = nullptr;
  RecordHeader header;                   // genuine, of a first frame
  std::deque<std::vector<char>> spoken;  // UCX may still have them
};

}  // namespace tutti::transport::ucx

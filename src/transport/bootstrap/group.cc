// group.cc: see group.hpp.
#include "transport/bootstrap/group.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/try.hpp"
#include "transport/bootstrap/hub.hpp"
#include "transport/bootstrap/socket.hpp"
#include "transport/bootstrap/spoke.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::int64_t kTickMs = 100;
constexpr std::int64_t kFarewellMs = 1000;  // to tell the others why it failed
constexpr std::int64_t kHubGraceMs = 1000;  // rank 0 times out first: it knows who is missing

std::int64_t now_ms() {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

std::string seconds(std::int64_t ms) {
  return fmt::format("{:g} s", static_cast<double>(ms) / 1e3);
}

// Reads what is there into `take`. False when the peer has gone.
template <typename Take>
bool read_all(const Socket& socket, const Take& take) {
  std::string buffer(kReadBytes, '\0');
  while (true) {
    const ssize_t got = ::recv(socket.number(), buffer.data(), buffer.size(), 0);
    if (got > 0) take(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    if (got > 0 && static_cast<std::size_t>(got) == buffer.size()) continue;
    if (got > 0) return true;
    if (got == 0) return false;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

// Sends what `outgoing` offers until nothing is left or the socket is full. False: peer gone.
template <typename Outgoing, typename Sent>
bool write_all(const Socket& socket, const Outgoing& outgoing, const Sent& sent) {
  while (true) {
    const std::string_view bytes = outgoing();
    if (bytes.empty()) return true;
    const ssize_t count = ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) sent(static_cast<std::size_t>(count));
    if (count >= 0 || errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

// Without a secret anybody who reaches the port could join, so only this host may reach it.
Status check_reach(const BootstrapOptions& options, const SocketAddress& address) {
  if (!options.secret.empty() || address.loopback()) return Status();
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is reachable from other hosts and the job has no secret; set "
                            "TUTTI_JOB_SECRET_FILE on all ranks, or start them with `tutti run`",
                            address.to_string()));
}

class HubGroup final : public BootstrapGroup {
 public:
  HubGroup(const BootstrapOptions& options, Socket listener)
      : options_(options),
        listener_(std::move(listener)),
        hub_(options.size, options.job, Authenticator(options.secret), random_nonce) {}

  Status meet() {
    TUTTI_TRY(drive("arrive", [this] { return hub_.joined() && hub_.all_sent(); }));
    // Nobody else is awaited, so nobody else shall get in.
    listener_.close();
    drop_strangers();
    return Status();
  }

  Result<std::vector<std::string>> exchange(const std::string& mine,
                                            std::uint64_t context) override {
    TUTTI_TRY(check_blob(mine));
    std::optional<std::vector<std::string>> all;
    hub_.begin_exchange(context, mine);
    TUTTI_TRY(drive("take part in an exchange", [&] {
      if (!all) all = hub_.take_exchanged();
      return all && hub_.all_sent();
    }));
    return std::move(*all);
  }

  static Status check_blob(const std::string& mine) {
    if (mine.size() <= kBlobBytesMax) return Status();
    return Status(StatusCode::invalid_argument,
                  fmt::format("a blob of {} bytes is too long to exchange (at most {})",
                              mine.size(), kBlobBytesMax));
  }

 private:
  template <typename Done>
  Status drive(const char* what, const Done& done) {
    const std::int64_t end = now_ms() + options_.deadline_ms;
    while (hub_.status().ok() && !done()) {
      const std::int64_t now = now_ms();
      if (now >= end) {
        hub_.fail(Status(StatusCode::timeout,
                         fmt::format("{} did not {} within {}{}", hub_.missing(), what,
                                     seconds(options_.deadline_ms), hub_.notes())));
      } else {
        turn(std::min(kTickMs, end - now));
      }
    }
    if (hub_.status().ok()) return Status();
    const std::int64_t farewell_end = now_ms() + kFarewellMs;
    while (!hub_.all_sent() && now_ms() < farewell_end) turn(kTickMs);
    return hub_.status();
  }

  void turn(std::int64_t wait_ms) {
    std::vector<pollfd> watched;
    if (listener_) watched.push_back({listener_.number(), POLLIN, 0});
    for (const auto& [id, socket] : sockets_) {
      const bool sending = !hub_.outgoing(id).empty();
      watched.push_back({id, static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0});
    }
    ::poll(watched.data(), watched.size(), static_cast<int>(wait_ms));
    for (const pollfd& each : watched) {
      if (each.revents == 0) continue;
      if (each.fd == listener_.number())
        accept_all();
      else
        serve(each.fd);
    }
    hub_.tick(now_ms());
    drop_finished();
  }

  void accept_all() {
    while (true) {
      std::string origin;
      Socket socket = accept_from(listener_, origin);
      if (!socket) return;
      const int id = socket.number();
      sockets_[id] = std::move(socket);
      hub_.opened(id, origin, now_ms());
      if (const auto surplus = hub_.surplus_stranger()) drop(*surplus);
    }
  }

  void serve(int id) {
    const auto found = sockets_.find(id);
    if (found == sockets_.end()) return;
    const bool open = read_all(found->second, [&](auto bytes) { hub_.received(id, bytes); });
    if (!open || !flush(id)) drop(id);
  }

  bool flush(int id) {
    return write_all(
        sockets_.at(id), [&] { return hub_.outgoing(id); },
        [&](std::size_t bytes) { hub_.sent(id, bytes); });
  }

  void drop_finished() {
    std::vector<int> gone;
    for (const auto& [id, socket] : sockets_)
      if (!flush(id) || hub_.finished(id)) gone.push_back(id);
    for (const int id : gone) drop(id);
  }

  void drop_strangers() {
    std::vector<int> strangers;
    for (const auto& [id, socket] : sockets_)
      if (!hub_.is_member(id)) strangers.push_back(id);
    for (const int id : strangers) drop(id);
  }

  void drop(int id) {
    hub_.closed(id);
    sockets_.erase(id);
  }

  BootstrapOptions options_;
  Socket listener_;
  std::map<int, Socket> sockets_;  // by descriptor, which is also the hub's connection id
  RendezvousHub hub_;
};

class SpokeGroup final : public BootstrapGroup {
 public:
  explicit SpokeGroup(const BootstrapOptions& options)
      : options_(options), hub_name_(fmt::format("{}:{}", options.address, options.port)) {}

  Status meet() {
    const std::int64_t end = now_ms() + options_.deadline_ms;
    std::int64_t pause_ms = 5;
    Status last;
    while (now_ms() < end) {
      last = try_all(end);
      if (last.ok() && spoke_) return drive([this] { return spoke_->joined(); }, end);
      if (last.code() == StatusCode::invalid_argument) return last;
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      pause_ms = std::min<std::int64_t>(pause_ms * 2, 100);
    }
    return Status(
        StatusCode::timeout,
        fmt::format("rank 0 did not answer rank {} at {} within {} (last: {}); is it "
                    "running, and are address and port right?",
                    options_.rank, hub_name_, seconds(options_.deadline_ms), last.message()));
  }

  Result<std::vector<std::string>> exchange(const std::string& mine,
                                            std::uint64_t context) override {
    TUTTI_TRY(HubGroup::check_blob(mine));
    std::optional<std::vector<std::string>> all;
    spoke_->begin_exchange(context, mine);
    TUTTI_TRY(drive(
        [&] {
          if (!all) all = spoke_->take_exchanged();
          return all.has_value();
        },
        now_ms() + options_.deadline_ms));
    return std::move(*all);
  }

 private:
  // Connects to the first address that answers. Errors  why the last one did not.
  Status try_all(std::int64_t end) {
    const auto addresses = resolve(options_.address, options_.port);
    TUTTI_TRY(addresses);
    Status last;
    for (const SocketAddress& address : *addresses) {
      TUTTI_TRY(check_reach(options_, address));
      last = try_one(address, end);
      if (last.ok()) return last;
    }
    return last;
  }

  Status try_one(const SocketAddress& address, std::int64_t end) {
    Result<Socket> socket = start_connecting(address);
    if (!socket.ok()) return socket.status().with_context(address.to_string());
    pollfd watched{socket->number(), POLLOUT, 0};
    const std::int64_t wait_ms = std::clamp<std::int64_t>(end - now_ms(), 0, 5000);
    if (::poll(&watched, 1, static_cast<int>(wait_ms)) != 1)
      return Status(StatusCode::timeout, address.to_string() + " is silent");
    if (const int error = connect_error(*socket); error != 0)
      return system_failure(address.to_string(), error);
    socket_ = std::move(*socket);
    spoke_ =
        std::make_unique<RendezvousSpoke>(options_.rank, options_.size, options_.job, hub_name_,
                                          Authenticator(options_.secret), random_nonce);
    // Rank 0 may have ended between our connect and its accept; then there is another chance.
    const Status status = drive([this] { return spoke_->answered(); }, end);
    if (status.code() != StatusCode::peer_lost) return Status();
    spoke_.reset();
    return status;
  }

  template <typename Done>
  Status drive(const Done& done, std::int64_t end) {
    end += kHubGraceMs;
    // What was completed before a failure stays completed: the next step meets the failure.
    while (!done()) {
      if (!spoke_->status().ok()) return spoke_->status();
      const std::int64_t now = now_ms();
      if (now >= end)
        spoke_->fail(Status(StatusCode::timeout,
                            fmt::format("rank {} heard nothing from rank 0 at {} within {}",
                                        options_.rank, hub_name_, seconds(options_.deadline_ms))));
      else
        turn(std::min(kTickMs, end - now));
    }
    return Status();
  }

  void turn(std::int64_t wait_ms) {
    if (!flush()) return spoke_->closed();
    const bool sending = !spoke_->outgoing().empty();
    pollfd watched{socket_.number(), static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0};
    ::poll(&watched, 1, static_cast<int>(wait_ms));
    if ((watched.revents & ~POLLOUT) == 0) return;
    if (!read_all(socket_, [this](auto bytes) { spoke_->received(bytes); })) spoke_->closed();
  }

  bool flush() {
    return write_all(
        socket_, [this] { return spoke_->outgoing(); },
        [this](std::size_t bytes) { spoke_->sent(bytes); });
  }

  BootstrapOptions options_;
  std::string hub_name_;
  Socket socket_;
  std::unique_ptr<RendezvousSpoke> spoke_;
};

Status check(const BootstrapOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return Status(StatusCode::invalid_argument,
                  fmt::format("there is no rank {} in a world of {}", options.rank, options.size));
  if (options.job.size() > kJobBytesMax)
    return Status(StatusCode::invalid_argument,
                  fmt::format("the job's name has more than {} bytes", kJobBytesMax));
  const bool address_used = options.size > 1 && options.listening_socket < 0;
  if (address_used && (options.port < 1 || options.port > 65535))
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} is no port where ranks can meet (1..65535)", options.port));
  return Status();
}

Result<Socket> listen_for(const BootstrapOptions& options) {
  const auto addresses = resolve(options.address, options.port);
  TUTTI_TRY(addresses);
  Status last;
  for (const SocketAddress& address : *addresses) {
    TUTTI_TRY(check_reach(options, address));
    Result<Socket> socket = listen_on(address);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last.with_context("rank 0");
}

Result<std::unique_ptr<BootstrapGroup>> join_as_hub(const BootstrapOptions& options) {
  Socket listener(options.listening_socket);
  if (!listener && options.size > 1) {
    Result<Socket> made = listen_for(options);
    TUTTI_TRY(made);
    listener = std::move(*made);
  }
  auto group = std::make_unique<HubGroup>(options, std::move(listener));
  TUTTI_TRY(group->meet());
  return std::unique_ptr<BootstrapGroup>(std::move(group));
}

}  // namespace

Result<std::unique_ptr<BootstrapGroup>> join(const BootstrapOptions& options) {
  TUTTI_TRY(check(options));
  if (options.rank == 0) return join_as_hub(options);
  auto group = std::make_unique<SpokeGroup>(options);
  TUTTI_TRY(group->meet());
  return std::unique_ptr<BootstrapGroup>(std::move(group));
}

}  // namespace tutti::transport

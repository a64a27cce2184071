// group.cc: see group.hpp.
#include "transport/bootstrap/group.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <map>
#include <utility>

#include "base/try.hpp"
#include "transport/bootstrap/bytes.hpp"
#include "transport/bootstrap/local_socket.hpp"
#include "transport/bootstrap/meeting.hpp"
#include "transport/bootstrap/socket.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::int64_t kTickMs = 100;
constexpr std::int64_t kBadNewsMs = 20;
constexpr std::int64_t kFarewellMs = 800;      // to tell the others why it failed
constexpr std::int64_t kShortFarewellMs = 20;  // where they have other sources
constexpr std::int64_t kCallMs = 3000;         // for a connection to come about
constexpr int kAcceptedPerTurn = 256;

// How long a parent is looked for on this host only. Where rank 0's address is of this host, all
// ranks are on it; elsewhere there is little to lose by asking.
constexpr std::int64_t kLoopbackPatienceMs = 400;
constexpr std::int64_t kPatienceMs = 200;

// Those near rank 0 give up first: they know best who is missing.
std::int64_t grace_ms(Rank rank) {
  if (rank == 0) return 0;
  return 1000 + 100 * std::popcount(static_cast<unsigned>(rank));
}

std::int64_t now_ms() {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

std::string seconds(std::int64_t ms) {
  return fmt::format("{:g} s", static_cast<double>(ms) / 1e3);
}

// Without a secret anybody who reaches the port could join, so only this host may reach it.
Status check_reach(const BootstrapOptions& options, const SocketAddress& address) {
  if (!options.secret.empty() || address.loopback()) return Status();
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is reachable from other hosts and the job has no secret; set "
                            "TUTTI_JOB_SECRET_FILE on all ranks, or start them with `tutti run`",
                            address.to_string()));
}

// Where a rank of this job can be found by those who know the job's secret, and by nobody else.
std::string local_name(const BootstrapOptions& options, int port, Rank rank) {
  const std::string statement = ByteWriter()
                                    .text(options.job)
                                    .text(fmt::format("{}:{}", options.address, port))
                                    .number(static_cast<std::int32_t>(rank))
                                    .bytes();
  const std::string proof =
      Authenticator(options.secret).prove("tutti rendezvous 2: local name", statement);
  char digits[2 * kProofBytes + 1];
  sodium_bin2hex(digits, sizeof(digits), reinterpret_cast<const unsigned char*>(proof.data()),
                 proof.size());
  return fmt::format("tutti-join-{}", digits);
}

ParentSearch search_for(const BootstrapOptions& options) {
  const Result<SocketAddress> numeric = parse_address(options.address, options.port);
  const bool loopback = options.address == "localhost" || (numeric.ok() && numeric->loopback());
  const std::int64_t patience = loopback ? kLoopbackPatienceMs : kPatienceMs;
  return ParentSearch(options.rank, options.local_names,
                      std::min(patience, options.deadline_ms / 4));
}

class TreeGroup final : public BootstrapGroup {
 public:
  TreeGroup(const BootstrapOptions& options, Socket listener)
      : options_(options),
        listener_(std::move(listener)),
        meeting_({options.rank, options.size, options.job,
                  fmt::format("{}:{}", options.address, options.port)},
                 Authenticator(options.secret), random_nonce, search_for(options)) {}

  Status meet() {
    listen_locally();
    const Status met = drive([this] { return meeting_.joined() && meeting_.all_sent(); });
    // Nobody else is awaited, so nobody else shall get in.
    listener_.close();
    local_listener_.close();
    flush_all();
    return met;
  }

  Result<std::vector<std::string>> exchange(const std::string& mine,
                                            std::uint64_t context) override {
    if (mine.size() > kBlobBytesMax)
      return Status(StatusCode::invalid_argument,
                    fmt::format("a blob of {} bytes is too long to exchange (at most {})",
                                mine.size(), kBlobBytesMax));
    std::optional<std::vector<std::string>> all;
    meeting_.tick(now_ms());
    meeting_.begin_exchange(context, mine);
    const Status driven = drive([&] {
      if (!all) all = meeting_.take_exchanged();
      return all && meeting_.all_sent();
    });
    // What was completed before a failure stays completed: the next step meets the failure.
    if (all) return std::move(*all);
    return driven;
  }

  Counts counts() const override {
    return {meeting_.turned_away(), meeting_.introductions(), meeting_.degree()};
  }

 private:
  // A call that is not connected yet.
  struct Pending {
    Socket socket;
    Call call;
    SocketAddress address;
    std::int64_t end_ms = 0;
  };

  template <typename Done>
  Status drive(const Done& done) {
    const std::int64_t start = now_ms();
    while (!done()) {
      if (!meeting_.status().ok()) return say_farewell();
      if (const Status news = options_.bad_news ? options_.bad_news() : Status(); !news.ok()) {
        meeting_.fail(news);
        continue;
      }
      const std::int64_t grace = meeting_.attached() ? grace_ms(options_.rank) : 0;
      const std::int64_t left = start + options_.deadline_ms + grace - now_ms();
      if (left > 0)
        turn(left);
      else
        meeting_.time_out(seconds(options_.deadline_ms));
    }
    return Status();
  }

  // Those who are just arriving shall hear of the failure too, unless they have other sources.
  Status say_farewell() {
    const std::int64_t end = now_ms() + (options_.bad_news ? kShortFarewellMs : kFarewellMs);
    turn(0);
    const auto unheard = [this] {
      return !meeting_.all_sent() || meeting_.answering() ||
             (meeting_.awaits_more() && !options_.bad_news);
    };
    while (unheard() && now_ms() < end) turn(std::min(kTickMs, end - now_ms()));
    return meeting_.status();
  }

  void turn(std::int64_t wait_ms) {
    meeting_.tick(now_ms());
    make_call();
    flush_all();
    const std::vector<pollfd> watched = wait(wait_ms);
    meeting_.tick(now_ms());
    for (const pollfd& each : watched) {
      if (each.revents == 0) continue;
      if (each.fd == listener_.number() || each.fd == local_listener_.number())
        accept_all(each.fd == local_listener_.number());
      else if (pending_ && each.fd == pending_->socket.number())
        finish_call();
      else
        serve(each.fd);
    }
    if (pending_ && now_ms() >= pending_->end_ms)
      give_up_call(Status(StatusCode::timeout, pending_->address.to_string() + " is silent"));
    flush_all();
  }

  std::vector<pollfd> wait(std::int64_t wait_ms) {
    std::vector<pollfd> watched;
    if (listener_ && meeting_.open()) watched.push_back({listener_.number(), POLLIN, 0});
    if (local_listener_ && meeting_.open())
      watched.push_back({local_listener_.number(), POLLIN, 0});
    if (pending_) watched.push_back({pending_->socket.number(), POLLOUT, 0});
    for (const auto& [id, socket] : sockets_) {
      const bool sending = !meeting_.outgoing(id).empty();
      watched.push_back({id, static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0});
    }
    wait_ms = std::min(wait_ms, options_.bad_news ? kBadNewsMs : kTickMs);
    if (const auto due = meeting_.due_ms()) wait_ms = std::min(wait_ms, *due - now_ms());
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max<std::int64_t>(wait_ms, 0)));
    return watched;
  }

  // ---- Those who call ----

  void listen_locally() {
    const RankRun below = binomial_subtree(options_.rank, options_.size);
    if (!options_.local_names || below.first == below.last) return;
    Result<Socket> made = listen_at_name(local_name(options_, port(), options_.rank));
    // Without it those below ask rank 0, who will hear of it if two processes are one rank.
    if (made.ok()) local_listener_ = std::move(*made);
  }

  int port() const {
    if (options_.listening_socket < 0) return options_.port;
    const auto address = local_address(listener_);
    return address.ok() ? address->port() : 0;
  }

  void accept_all(bool local) {
    for (int i = 0; i < kAcceptedPerTurn; ++i) {
      std::string origin;
      SocketAddress from;
      Socket socket = local ? accept_local(local_listener_, origin) : accept_from(listener_, from);
      if (!socket) return;
      const int id = socket.number();
      sockets_[id] = std::move(socket);
      meeting_.accepted(id, local ? origin : from.to_string());
      serve(id);
      if (const auto surplus = meeting_.surplus_stranger()) drop(*surplus);
    }
  }

  // ---- Those whom we call ----

  void make_call() {
    while (const auto call = meeting_.next_call()) {
      Status started = start(*call);
      if (started.code() == StatusCode::invalid_argument) meeting_.fail(started);
      if (!started.ok()) meeting_.not_reached(started);
    }
  }

  Status start(const Call& call) {
    if (call.where == Call::Where::local) {
      Result<Socket> socket = connect_to_name(local_name(options_, options_.port, call.to));
      TUTTI_TRY(socket.status().with_context(fmt::format("rank {}", call.to)));
      connected(std::move(*socket), call, {});
      return Status();
    }
    Result<SocketAddress> address = where_is(call);
    TUTTI_TRY(address);
    Result<Socket> socket = start_connecting(*address);
    TUTTI_TRY(socket.status().with_context(address->to_string()));
    pending_ = Pending{std::move(*socket), call, *address, now_ms() + kCallMs};
    return Status();
  }

  // Rank 0 may have several addresses; each call tries the next one.
  Result<SocketAddress> where_is(const Call& call) {
    if (call.where == Call::Where::assigned) {
      const auto address = parse_address(call.host, call.port);
      if (!address.ok()) return Status(StatusCode::peer_lost, address.status().message());
      return address;
    }
    if (next_zero_ >= zero_.size()) {
      const auto addresses = resolve(options_.address, options_.port);
      TUTTI_TRY(addresses);
      zero_ = *addresses;
      next_zero_ = 0;
    }
    const SocketAddress& address = zero_[next_zero_++];
    TUTTI_TRY(check_reach(options_, address));
    return address;
  }

  void finish_call() {
    if (const int error = connect_error(pending_->socket); error != 0)
      return give_up_call(system_failure(pending_->address.to_string(), error));
    Listening mine;
    if (pending_->call.purpose == CallPurpose::introduce) {
      const Result<Listening> listening = listen_where(pending_->socket);
      if (!listening.ok()) {
        meeting_.fail(listening.status());
        return give_up_call(listening.status());
      }
      mine = *listening;
    }
    Pending done = std::move(*pending_);
    pending_.reset();
    connected(std::move(done.socket), done.call, mine);
  }

  void give_up_call(const Status& why) {
    pending_.reset();
    meeting_.not_reached(why);
  }

  void connected(Socket socket, const Call& call, const Listening& mine) {
    const int id = socket.number();
    sockets_[id] = std::move(socket);
    meeting_.called(id, call, mine);
  }

  // Others reach this rank at the address from which it reached rank 0.
  Result<Listening> listen_where(const Socket& connection) {
    if (!listener_) {
      Result<SocketAddress> here = local_address(connection);
      TUTTI_TRY(here);
      here->set_port(0);
      Result<Socket> made = listen_on(*here);
      TUTTI_TRY(made);
      listener_ = std::move(*made);
    }
    const Result<SocketAddress> here = local_address(listener_);
    TUTTI_TRY(here);
    return Listening{false, here->host(), static_cast<std::uint16_t>(here->port())};
  }

  // ---- All of them ----

  void serve(int id) {
    const auto found = sockets_.find(id);
    if (found == sockets_.end()) return;
    if (!receive_all(id, found->second))
      drop(id);
    else if (!flush(id))
      hear_out(id);
  }

  // False when the peer has gone.
  bool receive_all(int id, const Socket& socket) {
    while (true) {
      const ssize_t got = ::recv(socket.number(), buffer_.data(), buffer_.size(), 0);
      if (got > 0) meeting_.received(id, {buffer_.data(), static_cast<std::size_t>(got)});
      if (got > 0 && static_cast<std::size_t>(got) == buffer_.size()) continue;
      if (got > 0) return true;
      if (got == 0) return false;
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }

  // Sends until nothing is left or the socket is full. False when the peer has gone.
  bool flush(int id) {
    const Socket& socket = sockets_.at(id);
    while (true) {
      const std::string_view bytes = meeting_.outgoing(id);
      if (bytes.empty()) return true;
      const ssize_t count = ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) meeting_.sent(id, static_cast<std::size_t>(count));
      if (count >= 0 || errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }

  void flush_all() {
    std::vector<int> gone;
    std::vector<int> finished;
    for (const auto& [id, socket] : sockets_)
      if (!flush(id))
        gone.push_back(id);
      else if (meeting_.finished(id))
        finished.push_back(id);
    for (const int id : gone) hear_out(id);
    for (const int id : finished) drop(id);
  }

  // A peer that takes no more bytes may have said why before it went.
  void hear_out(int id) {
    receive_all(id, sockets_.at(id));
    drop(id);
  }

  void drop(int id) {
    sockets_.erase(id);
    meeting_.closed(id);
  }

  BootstrapOptions options_;
  Socket listener_;        // of rank 0, or of one that was introduced
  Socket local_listener_;  // of ranks that have others below them
  std::optional<Pending> pending_;
  std::vector<SocketAddress> zero_;
  std::size_t next_zero_ = 0;
  std::map<int, Socket> sockets_;  // by descriptor, which is also the meeting's link id
  std::string buffer_ = std::string(kReadBytes, '\0');
  Meeting meeting_;
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
  // Before looking for anybody, so that all ranks say the same.
  const auto numeric = parse_address(options.address, options.port);
  if (address_used && numeric.ok()) return check_reach(options, *numeric);
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

}  // namespace

Result<std::unique_ptr<BootstrapGroup>> join(const BootstrapOptions& options) {
  Socket listener(options.rank == 0 ? options.listening_socket : -1);
  TUTTI_TRY(check(options));
  if (options.rank == 0 && !listener && options.size > 1) {
    Result<Socket> made = listen_for(options);
    TUTTI_TRY(made);
    listener = std::move(*made);
  }
  auto group = std::make_unique<TreeGroup>(options, std::move(listener));
  TUTTI_TRY(group->meet());
  return std::unique_ptr<BootstrapGroup>(std::move(group));
}

}  // namespace tutti::transport

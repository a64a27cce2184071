// transport.cc: the shm transport: how ranks find the board, connect on first use, and notice that
// a peer has left or died. Once two ranks are connected, endpoints work without system calls
// (fifo/endpoint.hpp); the sockets are looked at only when a peer says so on the board, and about
// once a millisecond for the sake of those that cannot say anything any more.
#include "transport/shm/transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "transport/fifo/endpoint.hpp"
#include "transport/fifo/outbox.hpp"
#include "transport/shm/attach.hpp"
#include "transport/shm/doorman.hpp"
#include "transport/shm/peer.hpp"
#include "transport/shm/set_up.hpp"
#include "transport/shm/sharing.hpp"

namespace tutti::transport {
namespace shm {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{1};
constexpr unsigned kPollsPerClockReading = 64;
constexpr std::size_t kStrangersMax = 4096;

// Of a peer's incoming socket, outgoing socket and process, as poll(2) found them.
bool ended(const pollfd* of_peer) {
  constexpr int kBroken = POLLHUP | POLLERR;
  return ((of_peer[0].revents | of_peer[1].revents) & kBroken) != 0 || of_peer[2].revents != 0;
}

class ShmEndpoint final : public fifo::QueueEndpoint {
 public:
  ShmEndpoint(Peer& peer, fifo::Doorbell& doorbell, const fifo::Layout& layout,
              const Sharing& sharing, Attach& attach, int channel)
      : QueueEndpoint(peer.rank(), doorbell),
        peer_(peer),
        layout_(layout),
        sharing_(sharing),
        attach_(attach),
        channel_(channel) {}

  // Makes the queue that we send through. It can be filled at once; the peer gets it by hand_over.
  Status open(fifo::Reuse reuse) {
    Result<Descriptor> file = make_memory_file(layout_.bytes());
    TUTTI_TRY(file);
    Result<Mapping> memory = map_file(file->number(), layout_.bytes(), Pages::when_touched);
    TUTTI_TRY(memory);
    fifo::initialize(memory->base(), layout_);
    file_ = std::move(file).value();
    outgoing_ = std::move(memory).value();
    producer_.attach(outgoing_.base(), layout_, reuse);
    return {};
  }

  // True once the peer has, or will find, the queue's file.
  Result<bool> hand_over() {
    Result<bool> sent = peer_.send_queue(channel_, file_);
    if (sent.ok() && *sent) file_.close();
    return sent;
  }
  bool handed_over() const { return !file_.open(); }

  void attach(Mapping queue) {
    if (incoming_ || failed()) return;
    incoming_ = std::move(queue);
    consumer_.attach(incoming_.base(), layout_);
  }

  MemoryReference export_memory(const void* memory, std::size_t bytes) override {
    for (const Exported& known : exported_)
      if (known.memory == memory && known.bytes >= bytes &&
          sharing_.still_lies(memory, bytes, known.reference) &&
          known.generation == shared_generation())
        return known.reference;
    sharing_.note_use();
    const std::uint64_t generation = shared_generation();
    const MemoryReference reference = peer_.export_memory(memory, bytes, sharing_.in_place());
    // That ordinary memory has no reference holds for this very length only.
    if (reference.addressable()) {
      exported_[next_exported_] = {memory, bytes, generation, reference};
      next_exported_ = (next_exported_ + 1) % exported_.size();
    }
    return reference;
  }

  std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) override {
    return peer_.import_memory(reference, bytes);
  }
  std::uint64_t import_generation() const override { return peer_.import_generation(); }

  bool attached() const override { return attach_.reaches(peer_.rank()); }
  MemoryReference attach_memory(const void* memory, std::size_t bytes) override {
    const bool possible = attached() && attach_.system_copies(memory, bytes);
    return possible ? MemoryReference::of_attached(memory) : MemoryReference();
  }
  Status read_attached(std::byte* to, std::uint64_t from, std::size_t bytes) override {
    return attach_.read(peer_.rank(), to, from, bytes);
  }
  Status write_attached(std::uint64_t to, const std::byte* from, std::size_t bytes) override {
    return attach_.write(peer_.rank(), to, from, bytes);
  }

 private:
  // The last answers of export_memory: programs use the same few buffers again and again.
  struct Exported {
    const void* memory = nullptr;
    std::size_t bytes = 0;
    std::uint64_t generation = 0;
    MemoryReference reference;
  };

  Peer& peer_;
  const fifo::Layout& layout_;
  const Sharing& sharing_;
  Attach& attach_;
  int channel_;
  Descriptor file_;
  Mapping outgoing_;
  Mapping incoming_;
  std::array<Exported, 4> exported_;
  std::size_t next_exported_ = 0;
};

class ShmTransport final : public Transport {
 public:
  // `shown`: this rank's token, where its address says.
  ShmTransport(const TransportOptions& options, std::vector<Address> addresses,
               std::unique_ptr<const std::string> shown, Descriptor listener, Mapping board);
  ~ShmTransport() override;

  // Rank 0's part of the set-up: gives the board's file to all other ranks.
  Status hand_out_board(const Descriptor& board, Clock::time_point deadline,
                        const std::function<Status()>& bad_news);

  TransportTraits traits() const override {
    return {
        .name = "shm", .direct = true, .any_memory = false, .immediate = true, .attaches = true};
  }
  Rank rank() const override { return self_.rank; }
  int size() const override { return static_cast<int>(addresses_.size()); }
  std::size_t frame_bytes_max() const override { return frame_bytes_max_; }
  int channel_count() const override { return self_.channel_count; }
  Rank caller(int channel, Rank after) override;

  Result<Endpoint*> endpoint(Rank peer, int channel) override;
  bool send_to_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                   std::span<const std::byte> head, std::span<const std::byte> body) override {
    return (outbox_ || make_outbox()) && outbox_->send(endpoints, tag, head, body);
  }
  std::span<std::byte> reserve_for_all(std::span<Endpoint* const> endpoints,
                                       std::size_t bytes) override {
    if (!outbox_ && !make_outbox()) return {};
    return outbox_->reserve(endpoints, bytes);
  }
  std::span<std::byte> reserve_in_place(std::span<Endpoint* const> endpoints, Endpoint& from,
                                        std::size_t bytes) override {
    if (!outbox_) return {};
    return outbox_->reserve_in_place(endpoints, from, bytes);
  }
  void commit_for_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                      std::size_t bytes) override {
    outbox_->commit(endpoints, tag, bytes);
  }
  std::span<std::atomic<std::uint64_t>> shared_words() override {
    return self_.board.shared_words(size());
  }
  std::span<std::byte> shared_memory() override { return self_.board.shared_memory(size()); }
  void wake_sharers() override {
    for (Rank rank = 0; rank < size(); ++rank) fifo::ring(self_.board.doorbell(rank));
  }
  void await_shared(const std::atomic<std::uint64_t>* word, std::uint64_t number) override {
    awaited_ = {word, number};
  }
  Result<bool> poll() override;
  void sleep(std::int64_t timeout_us) override;

  void begin_direct_call() override { sharing_.begin_call(); }
  void end_direct_call() override { sharing_.end_call(); }

  void* allocate_shareable(std::size_t bytes) override { return shared_allocate(bytes); }
  void release_shareable(void* memory) override { shared_deallocate(memory); }

  bool all_attached() override { return attach_.all_reach(); }
  void withdraw_memory(const void* memory, std::size_t bytes) override;

  bool flushed() const override { return unsent_.empty(); }
  std::size_t memory_bytes() const override {
    return live_.size() * self_.layout.bytes() + Board::head_bytes(size()) +
           (outbox_ ? outbox_->bytes() : 0);
  }

 private:
  // A connection as far as it exists: the peer's queue may arrive before our first use.
  struct Connection {
    std::unique_ptr<ShmEndpoint> endpoint;
    Mapping arrived;
  };

  Connection& connection(Rank peer, int channel) {
    return connections_[static_cast<std::size_t>(peer) *
                            static_cast<std::size_t>(self_.channel_count) +
                        static_cast<std::size_t>(channel)];
  }
  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }

  bool make_outbox();
  bool look();
  bool mail_came() const { return doorbell_.mail.load(std::memory_order_acquire) != mail_seen_; }
  void read_mail();
  void meet_strangers();
  void meet(Received first, Descriptor& stranger);
  void receive_from(Peer& peer);
  void hand_over_queues();
  void check_if_due();
  void check_sockets();
  void judge(Peer& peer);
  void mark_left(Rank rank);
  void lose(Rank rank, const Status& status);

  std::vector<Address> addresses_;
  std::unique_ptr<const std::string> shown_;
  Self self_;
  std::size_t frame_bytes_max_;
  Sharing sharing_;
  Attach attach_;
  fifo::Doorbell& doorbell_;
  fifo::Sleeper sleeper_;
  fifo::AwaitedWord awaited_;
  Descriptor listener_;
  Doorman doorman_;
  std::vector<Descriptor> strangers_;  // accepted, first message still to come
  std::vector<Peer> peers_;            // by rank; our own place is not used
  std::vector<Connection> connections_;
  std::vector<ShmEndpoint*> live_;
  std::vector<ShmEndpoint*> unsent_;    // endpoints whose queue the peer was not given yet
  std::optional<fifo::Outbox> outbox_;  // from its first use on
  std::vector<pollfd> watched_;
  Status status_;
  std::uint32_t mail_seen_ = 0;
  unsigned polls_ = 0;
  Clock::time_point checked_ = Clock::now();
  std::uint64_t heap_generation_ = 0;
  bool peers_may_be_late_ = false;          // in a call that has failed here
  const Descriptor* board_file_ = nullptr;  // while rank 0 hands it out
  std::vector<bool> has_board_;
  pid_t process_ = getpid();
};

ShmTransport::ShmTransport(const TransportOptions& options, std::vector<Address> addresses,
                           std::unique_ptr<const std::string> shown, Descriptor listener,
                           Mapping board)
    : addresses_(std::move(addresses)),
      shown_(std::move(shown)),
      self_{.rank = options.rank,
            .channel_count = options.channel_count,
            .context = options.context,
            .secret = options.job_secret,
            .address = addresses_[static_cast<std::size_t>(options.rank)],
            .layout = fifo::Layout::of(options.frame_bytes_max, options.queue_bytes),
            .reuse = options.reuse_late ? fifo::Reuse::late : fifo::Reuse::soon,
            .board = Board(std::move(board))},
      frame_bytes_max_(options.frame_bytes_max),
      sharing_(options.share_in_place),
      attach_(self_.board.attach_seats(size()), options.rank, addresses_),
      doorbell_(self_.board.doorbell(options.rank)),
      sleeper_(doorbell_),
      listener_(std::move(listener)),
      doorman_(options.rank, options.context, options.job_secret, addresses_),
      connections_(addresses_.size() * static_cast<std::size_t>(options.channel_count)),
      has_board_(addresses_.size()) {
  for (Rank rank = 0; rank < size(); ++rank)
    peers_.emplace_back(self_, rank, addresses_[static_cast<std::size_t>(rank)]);
  attach_.probe(options.attach);
}

ShmTransport::~ShmTransport() {
  // A forked child that destroys its copy has no say in the matter.
  if (process_ != getpid()) return;
  doorbell_.left.store(1, std::memory_order_release);
  for (const Peer& other : peers_)
    if (other.connected()) self_.board.announce_mail(other.rank());
  // Who has not read it yet has it mapped, or will find it at its door.
  if (outbox_) shared_deallocate(outbox_->memory());
}

// ---- Set-up ----

Status ShmTransport::hand_out_board(const Descriptor& board, Clock::time_point deadline,
                                    const std::function<Status()>& bad_news) {
  board_file_ = &board;
  has_board_[static_cast<std::size_t>(self_.rank)] = true;
  const auto missing = [&] { return std::find(has_board_.begin(), has_board_.end(), false); };
  while (missing() != has_board_.end()) {
    if (Clock::now() > deadline)
      return Status(StatusCode::timeout,
                    fmt::format("rank {} did not ask rank 0 for the shared doorbells",
                                missing() - has_board_.begin()));
    std::vector<pollfd> waiting = {{listener_.number(), POLLIN, 0}};
    for (const Descriptor& stranger : strangers_) waiting.push_back({stranger.number(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), kPatienceMs);
    meet_strangers();
    if (bad_news) TUTTI_TRY(bad_news());
  }
  board_file_ = nullptr;
  return {};
}

// ---- First use ----

Result<Endpoint*> ShmTransport::endpoint(Rank peer_rank, int channel) {
  TUTTI_ASSERT(peer_rank >= 0 && peer_rank < size() && peer_rank != self_.rank,
               "a peer is another rank");
  TUTTI_ASSERT(channel >= 0 && channel < self_.channel_count, "channels count from 0");
  Connection& connected = connection(peer_rank, channel);
  if (!connected.endpoint) {
    auto made = std::make_unique<ShmEndpoint>(peer(peer_rank), self_.board.doorbell(peer_rank),
                                              self_.layout, sharing_, attach_, channel);
    TUTTI_TRY(made->open(self_.reuse));
    if (connected.arrived) made->attach(std::move(connected.arrived));
    live_.push_back(made.get());
    unsent_.push_back(made.get());
    connected.endpoint = std::move(made);
    hand_over_queues();
  }
  if (connected.endpoint->failed()) return connected.endpoint->status();
  return static_cast<Endpoint*>(connected.endpoint.get());
}

bool ShmTransport::make_outbox() {
  void* const memory = shared_allocate(fifo::Outbox::bytes_of(self_.layout));
  if (memory != nullptr) outbox_.emplace(static_cast<std::byte*>(memory), self_.layout);
  return memory != nullptr;
}

// Gives peers the queues that they do not have yet. A peer that left will not read them, but what
// it sent us may still wait at our door.
void ShmTransport::hand_over_queues() {
  std::vector<ShmEndpoint*> still_unsent;
  for (ShmEndpoint* endpoint : unsent_) {
    if (endpoint->failed()) continue;
    const Result<bool> sent = endpoint->hand_over();
    if (sent.ok()) {
      if (!*sent) still_unsent.push_back(endpoint);
      continue;
    }
    const Rank rank = endpoint->peer();
    if (self_.board.left(rank)) {
      meet_strangers();
      receive_from(peer(rank));
      mark_left(rank);
    } else {
      lose(rank,
           Status(sent.status().code(), peer(rank).name() + ": " + sent.status().message(), rank));
    }
  }
  unsent_ = std::move(still_unsent);
}

Rank ShmTransport::caller(int channel, Rank after) {
  for (Rank other = after + 1; other < size(); ++other) {
    const Connection& known = connection(other, channel);
    if (known.arrived && !known.endpoint) return other;
  }
  return -1;
}

// ---- Driving ----

Result<bool> ShmTransport::poll() {
  if (mail_came()) [[unlikely]]
    read_mail();
  if (!unsent_.empty()) [[unlikely]]
    hand_over_queues();
  if (++polls_ >= kPollsPerClockReading) [[unlikely]]
    check_if_due();
  const bool found = look();
  if (!status_.ok()) [[unlikely]]
    return status_;
  return found;
}

void ShmTransport::sleep(std::int64_t timeout_us) {
  sleeper_.sleep(timeout_us,
                 [this] { return look() || mail_came() || !unsent_.empty() || awaited_.came(); });
  polls_ = kPollsPerClockReading;  // however long that was: see whether a check is due
}

// True when a peer did something since the last look.
bool ShmTransport::look() {
  bool found = false;
  for (ShmEndpoint* endpoint : live_) {
    found = endpoint->news() || found;
    if (endpoint->failed() && status_.ok()) [[unlikely]]
      status_ = endpoint->status();
  }
  return found;
}

void ShmTransport::read_mail() {
  mail_seen_ = doorbell_.mail.load(std::memory_order_acquire);
  meet_strangers();
  for (Peer& other : peers_) receive_from(other);
  checked_ = {};  // a peer that leaves announces it, too
  polls_ = kPollsPerClockReading;
}

void ShmTransport::receive_from(Peer& other) {
  const Status received = other.receive();
  for (Peer::ArrivedQueue& queue : other.take_queues()) {
    Connection& connected = connection(other.rank(), queue.channel);
    if (connected.endpoint) {
      connected.endpoint->attach(std::move(queue.memory));
    } else {
      connected.arrived = std::move(queue.memory);
    }
  }
  if (!received.ok()) lose(other.rank(), Status(received.code(), received.message(), other.rank()));
}

// Peers that store into mapped memory keep what they have mapped; the program's moves elsewhere.
// What they are copying into plain memory at this moment is waited for.
void ShmTransport::withdraw_memory(const void* memory, std::size_t bytes) {
  shared_withdraw(memory, bytes);
  peers_may_be_late_ = true;
  attach_.withdraw();
}

// ---- Those who knock ----

void ShmTransport::meet_strangers() {
  while (strangers_.size() < kStrangersMax) {
    Descriptor stranger = accept_from(listener_);
    if (!stranger.open()) break;
    strangers_.push_back(std::move(stranger));
  }
  std::vector<Descriptor> silent;
  for (Descriptor& stranger : strangers_) {
    Received first = receive_message(stranger);
    if (first.kind == Received::Kind::nothing) {
      silent.push_back(std::move(stranger));
    } else if (first.kind == Received::Kind::message) {
      meet(std::move(first), stranger);
    }
  }
  strangers_ = std::move(silent);
}

// Judges a first message. The caller closes a connection that is not adopted.
void ShmTransport::meet(Received first, Descriptor& stranger) {
  const Message& message = first.message;
  if (message.kind == MessageKind::ask_board && board_file_ == nullptr) return;
  if (!doorman_.admits(message, process_number_behind(stranger))) return;
  if (message.kind == MessageKind::hello) {
    peer(message.from).adopt(std::move(stranger));
  } else if (message.kind == MessageKind::ask_board && board_file_ != nullptr) {
    Message answer{.kind = MessageKind::board,
                   .from = self_.rank,
                   .context = self_.context,
                   .to = message.from,
                   .nonce = message.nonce};
    answer.proof = prove(answer, self_.address.token, self_.secret);
    const Result<bool> sent = send_message(stranger, answer, board_file_->number());
    if (sent.ok() && *sent) has_board_[static_cast<std::size_t>(message.from)] = true;
  }
}

// ---- Those who leave, and those who die ----

void ShmTransport::check_if_due() {
  polls_ = 0;
  const Clock::time_point now = Clock::now();
  if (now - checked_ < kCheckInterval) return;
  checked_ = now;
  check_sockets();
  const std::uint64_t generation = shared_generation();
  if (generation == heap_generation_) return;
  heap_generation_ = generation;
  // Who is still in a call that has failed here reads what is freed here. It keeps its mappings.
  if (peers_may_be_late_) return;
  for (Peer& other : peers_)
    if (other.connected()) other.withdraw_freed_regions();
}

// One system call tells of all sockets which have broken, or have something to read that was not
// announced because its sender died in between.
void ShmTransport::check_sockets() {
  watched_.clear();
  watched_.push_back({listener_.number(), POLLIN, 0});
  for (const Peer& other : peers_) {
    watched_.push_back({other.incoming(), POLLIN, 0});
    watched_.push_back({other.outgoing(), 0, 0});
    watched_.push_back({other.process(), POLLIN, 0});
  }
  if (::poll(watched_.data(), watched_.size(), 0) <= 0) return;
  meet_strangers();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const pollfd* of_peer = &watched_[1 + 3 * i];
    if (of_peer[0].revents != 0) receive_from(peers_[i]);
    if (ended(of_peer)) judge(peers_[i]);
  }
}

// Says of a peer that is gone whether it left in good order.
void ShmTransport::judge(Peer& other) {
  receive_from(other);
  if (self_.board.left(other.rank())) {
    mark_left(other.rank());
    other.hang_up();
  } else {
    lose(other.rank(),
         Status(StatusCode::peer_lost, other.name() + " died without closing its communicator",
                other.rank()));
  }
}

void ShmTransport::mark_left(Rank rank) {
  for (ShmEndpoint* endpoint : live_)
    if (endpoint->peer() == rank) endpoint->peer_left();
}

void ShmTransport::lose(Rank rank, const Status& status) {
  peer(rank).hang_up();
  for (ShmEndpoint* endpoint : live_)
    if (endpoint->peer() == rank) endpoint->fail(status);
  if (status_.ok()) status_ = status;
}

}  // namespace
}  // namespace shm

Result<std::unique_ptr<Transport>> make_shm_transport(const TransportOptions& options,
                                                      const ExchangeFunction& exchange) {
  if (sodium_init() < 0) return Status(StatusCode::system_error, "libsodium does not start");
  const shm::Clock::time_point deadline = shm::Clock::now() + options.setup_timeout;
  shm::Address mine = shm::make_address();
  auto shown = std::make_unique<const std::string>(mine.token);
  mine.token_at = reinterpret_cast<std::uintptr_t>(shown->data());
  Result<shm::Descriptor> listener = shm::listen_at(mine.token);
  TUTTI_TRY(listener);
  Result<std::vector<shm::Address>> addresses = shm::exchange_addresses(options, mine, exchange);
  TUTTI_TRY(addresses);

  shm::Descriptor board_file;
  Result<shm::Mapping> board = shm::Mapping();
  if (options.rank == 0) {
    Result<shm::Descriptor> made = shm::make_memory_file(shm::Board::bytes(options.size));
    TUTTI_TRY(made);
    board_file = std::move(made).value();
    board = shm::map_file(board_file.number(), shm::Board::bytes(options.size),
                          shm::Pages::when_touched);
  } else {
    board = shm::ask_for_board(options, addresses->front(), mine, deadline);
  }
  TUTTI_TRY(board);
  auto transport =
      std::make_unique<shm::ShmTransport>(options, std::move(addresses).value(), std::move(shown),
                                          std::move(listener).value(), std::move(board).value());
  if (options.rank == 0)
    TUTTI_TRY(transport->hand_out_board(board_file, deadline, options.bad_news));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tutti::transport

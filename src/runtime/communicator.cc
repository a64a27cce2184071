// The public Communicator: finds the world, then forwards every call as one Request.
#include "tutti/communicator.hpp"

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/job_board.hpp"
#include "base/job_secret.hpp"
#include "base/log.hpp"
#include "base/try.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/consensus.hpp"
#include "runtime/host.hpp"
#include "runtime/shrink.hpp"
#include "runtime/split.hpp"
#include "runtime/world.hpp"
#include "transport/bootstrap/group.hpp"

namespace tutti {
namespace {

using runtime::CommunicatorState;
using Request = CommunicatorState::Request;

Status not_connected() {
  return Status(StatusCode::invalid_argument,
                "this communicator is not connected (default-made, moved from, or split with a "
                "negative color)");
}

Request request_of(Collective collective, const void* input, void* output, std::size_t count,
                   DataType type, Rank root = 0) {
  Request request;
  request.collective = collective;
  request.input = input;
  request.output = output;
  request.count = count;
  request.type = type;
  request.root = root;
  return request;
}

// Lifetime  the reduction's, until the request has been run or started.
Request reduction_request(Collective collective, const void* input, void* output, std::size_t count,
                          DataType type, const Reduction& op, Rank root = 0) {
  Request request = request_of(collective, input, output, count, type, root);
  request.op = op.op();
  if (op.special() != nullptr) request.special = &op.special();
  return request;
}

Request exchange_request(const void* input, Rank to, void* output, Rank from, std::size_t count,
                         DataType type) {
  Request request = request_of(Collective::send_recv, input, output, count, type);
  request.to = to;
  request.from = from;
  return request;
}

Request barrier_request() {
  return request_of(Collective::barrier, nullptr, nullptr, 0, DataType::int32);
}

// Joins through a meeting point and makes the world's communicator.
Result<std::shared_ptr<CommunicatorState>> join_world(transport::BootstrapOptions meeting,
                                                      const base::Config& config,
                                                      const CommunicatorOptions& options,
                                                      std::shared_ptr<const base::JobBoard> board) {
  runtime::Members members;
  members.board = std::move(board);
  members.rank = meeting.rank;
  members.size = meeting.size;
  members.secret = meeting.secret;
  members.address = meeting.address;
  auto tuning = runtime::find_tuning(config, base::capture_environment(),
                                     base::Log(config.log, fmt::format("rank {}", meeting.rank)));
  if (!tuning.ok()) return tuning.status();
  members.tuning = *std::move(tuning);
  members.bad_news = [&members] { return runtime::find_ended(members, false); };
  meeting.bad_news = members.bad_news;
  std::shared_ptr<transport::BootstrapGroup> group;
  if (meeting.size > 1) {
    auto joined = transport::join(meeting);
    if (!joined.ok()) return joined.status();
    group = *std::move(joined);
  }
  members.exchange = [group](const std::string& mine) -> Result<std::vector<std::string>> {
    if (!group) return std::vector<std::string>{mine};
    return group->exchange(mine);
  };
  return runtime::make_communicator(members, config, options);
}

}  // namespace

Work::Work() = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&& other) noexcept {
  if (state_) static_cast<void>(wait());
  state_ = std::move(other.state_);
  return *this;
}
Work::~Work() {
  if (state_) static_cast<void>(wait());
}
Work::Work(std::shared_ptr<runtime::WorkState> state) : state_(std::move(state)) {}

Status Work::wait() {
  if (!state_) return Status(StatusCode::invalid_argument, "this Work was never started");
  return state_->owner().wait(*state_);
}

bool Work::test() { return !state_ || state_->owner().test(*state_); }

Communicator::Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;
Communicator::Communicator(std::shared_ptr<runtime::CommunicatorState> state)
    : state_(std::move(state)) {}

Result<Communicator> Communicator::from_environment(const CommunicatorOptions& options) {
  auto config = runtime::effective_config(options);
  if (!config.ok()) return config.status();
  const base::Environment environment = base::capture_environment();
  auto world = base::world_from_environment(environment);
  if (!world.ok()) return world.status();
  auto secret = base::find_job_secret(*config, std::string(base::value_of(environment, "HOME")));
  if (!secret.ok()) return secret.status();
  transport::BootstrapOptions meeting;
  meeting.rank = world->rank;
  meeting.size = world->world_size;
  meeting.address = world->master_address;
  meeting.port = world->master_port;
  meeting.secret = *secret;
  meeting.deadline_ms = config->setup_timeout.count();
  std::shared_ptr<const base::JobBoard> board;
  if (!config->job_board.empty()) {
    auto opened = base::JobBoard::open(config->job_board, meeting.size);
    // Without it deaths are noticed later, but they are noticed.
    if (opened.ok())
      board = *std::move(opened);
    else
      base::Log(config->log, fmt::format("rank {}", meeting.rank)).info(opened.status().message());
  }
  auto state = join_world(meeting, *config, options, board);
  if (!state.ok())
    return state.status().with_context(
        fmt::format("rank {} of {} (from {})", world->rank, world->world_size, world->source));
  return Communicator(*std::move(state));
}

Result<Communicator> Communicator::from_rendezvous(const Rendezvous& rendezvous,
                                                   const CommunicatorOptions& options) {
  auto config = runtime::effective_config(options);
  if (!config.ok()) return config.status();
  if (rendezvous.size < 1 || rendezvous.rank < 0 || rendezvous.rank >= rendezvous.size)
    return Status(StatusCode::invalid_argument, fmt::format("rank {} of {} ranks does not exist",
                                                            rendezvous.rank, rendezvous.size));
  transport::BootstrapOptions meeting;
  meeting.rank = rendezvous.rank;
  meeting.size = rendezvous.size;
  meeting.address = rendezvous.address;
  meeting.port = rendezvous.port;
  meeting.secret = rendezvous.secret;
  meeting.deadline_ms = config->setup_timeout.count();
  auto state = join_world(meeting, *config, options, nullptr);
  if (!state.ok())
    return state.status().with_context(
        fmt::format("rank {} of {}", rendezvous.rank, rendezvous.size));
  return Communicator(*std::move(state));
}

Result<std::vector<Communicator>> Communicator::for_threads(int size,
                                                            const CommunicatorOptions& options) {
  if (size < 1) return Status(StatusCode::invalid_argument, fmt::format("{} ranks are none", size));
  auto config = runtime::effective_config(options);
  if (!config.ok()) return config.status();
  runtime::Members members;
  members.size = size;
  members.job = runtime::draw_job();
  members.threads =
      transport::MemoryWorld::make(runtime::transport_options(*config, members, false));
  auto tuning = runtime::find_tuning(*config, base::capture_environment(),
                                     base::Log(config->log, "ranks of this process"));
  if (!tuning.ok()) return tuning.status();
  members.tuning = *std::move(tuning);
  // All ranks are here, and all say the same.
  members.exchange = [size](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>(static_cast<std::size_t>(size), mine);
  };
  std::vector<Communicator> communicators;
  for (Rank r = 0; r < size; ++r) {
    members.rank = r;
    auto state = runtime::make_communicator(members, *config, options);
    if (!state.ok()) return state.status();
    communicators.push_back(Communicator(*std::move(state)));
  }
  return communicators;
}

Rank Communicator::rank() const { return state_ ? state_->rank() : 0; }
int Communicator::size() const { return state_ ? state_->size() : 0; }
std::string Communicator::transport_name() const {
  return state_ ? state_->transport_name() : "none";
}
const Transport* Communicator::transport() const { return state_ ? &state_->transport() : nullptr; }

Result<Communicator> Communicator::split(int color, int key) {
  if (!state_) return not_connected();
  auto state = runtime::split(*state_, color, key);
  if (!state.ok()) return state.status();
  return Communicator(*std::move(state));
}

Status Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                const Reduction& op) {
  if (!state_) return not_connected();
  return state_->run(reduction_request(Collective::all_reduce, input, output, count, type, op));
}

Status Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type) {
  if (!state_) return not_connected();
  return state_->run(request_of(Collective::all_gather, input, output, count, type));
}

Status Communicator::reduce_scatter(const void* input, void* output, std::size_t count,
                                    DataType type, const Reduction& op) {
  if (!state_) return not_connected();
  return state_->run(reduction_request(Collective::reduce_scatter, input, output, count, type, op));
}

Status Communicator::broadcast(const void* input, void* output, std::size_t count, DataType type,
                               Rank root) {
  if (!state_) return not_connected();
  return state_->run(request_of(Collective::broadcast, input, output, count, type, root));
}

Status Communicator::reduce(const void* input, void* output, std::size_t count, DataType type,
                            const Reduction& op, Rank root) {
  if (!state_) return not_connected();
  return state_->run(reduction_request(Collective::reduce, input, output, count, type, op, root));
}

Status Communicator::gather(const void* input, void* output, std::size_t count, DataType type,
                            Rank root) {
  if (!state_) return not_connected();
  return state_->run(request_of(Collective::gather, input, output, count, type, root));
}

Status Communicator::scatter(const void* input, void* output, std::size_t count, DataType type,
                             Rank root) {
  if (!state_) return not_connected();
  return state_->run(request_of(Collective::scatter, input, output, count, type, root));
}

Status Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type) {
  if (!state_) return not_connected();
  return state_->run(request_of(Collective::all_to_all, input, output, count, type));
}

Status Communicator::send(const void* input, std::size_t count, DataType type, Rank to) {
  if (!state_) return not_connected();
  return state_->run(exchange_request(input, to, nullptr, -1, count, type));
}

Status Communicator::recv(void* output, std::size_t count, DataType type, Rank from) {
  if (!state_) return not_connected();
  return state_->run(exchange_request(nullptr, -1, output, from, count, type));
}

Status Communicator::send_recv(const void* input, Rank to, void* output, Rank from,
                               std::size_t count, DataType type) {
  if (!state_) return not_connected();
  return state_->run(exchange_request(input, to, output, from, count, type));
}

Status Communicator::barrier() {
  if (!state_) return not_connected();
  return state_->run(barrier_request());
}

Result<Work> Communicator::all_reduce_async(const void* input, void* output, std::size_t count,
                                            DataType type, const Reduction& op) {
  if (!state_) return not_connected();
  return state_->start(reduction_request(Collective::all_reduce, input, output, count, type, op));
}

Result<Work> Communicator::all_gather_async(const void* input, void* output, std::size_t count,
                                            DataType type) {
  if (!state_) return not_connected();
  return state_->start(request_of(Collective::all_gather, input, output, count, type));
}

Result<Work> Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count,
                                                DataType type, const Reduction& op) {
  if (!state_) return not_connected();
  return state_->start(
      reduction_request(Collective::reduce_scatter, input, output, count, type, op));
}

Result<Work> Communicator::broadcast_async(const void* input, void* output, std::size_t count,
                                           DataType type, Rank root) {
  if (!state_) return not_connected();
  return state_->start(request_of(Collective::broadcast, input, output, count, type, root));
}

Result<Work> Communicator::reduce_async(const void* input, void* output, std::size_t count,
                                        DataType type, const Reduction& op, Rank root) {
  if (!state_) return not_connected();
  return state_->start(reduction_request(Collective::reduce, input, output, count, type, op, root));
}

Result<Work> Communicator::gather_async(const void* input, void* output, std::size_t count,
                                        DataType type, Rank root) {
  if (!state_) return not_connected();
  return state_->start(request_of(Collective::gather, input, output, count, type, root));
}

Result<Work> Communicator::scatter_async(const void* input, void* output, std::size_t count,
                                         DataType type, Rank root) {
  if (!state_) return not_connected();
  return state_->start(request_of(Collective::scatter, input, output, count, type, root));
}

Result<Work> Communicator::all_to_all_async(const void* input, void* output, std::size_t count,
                                            DataType type) {
  if (!state_) return not_connected();
  return state_->start(request_of(Collective::all_to_all, input, output, count, type));
}

Result<Work> Communicator::send_recv_async(const void* input, Rank to, void* output, Rank from,
                                           std::size_t count, DataType type) {
  if (!state_) return not_connected();
  return state_->start(exchange_request(input, to, output, from, count, type));
}

Result<Work> Communicator::barrier_async() {
  if (!state_) return not_connected();
  return state_->start(barrier_request());
}

Result<PlanReport> Communicator::explain(Collective collective, std::size_t count, DataType type,
                                         Rank root) {
  if (!state_) return not_connected();
  return state_->explain(collective, count, type, root);
}

MemoryUse Communicator::memory_use() const { return state_ ? state_->memory_use() : MemoryUse{}; }

void Communicator::abort() {
  if (state_) state_->abort();
}

Status Communicator::revoke() {
  if (!state_) return not_connected();
  return state_->revoke(runtime::revoked_by(state_->rank()));
}

Result<Consensus> Communicator::agree(std::uint64_t flags) {
  if (!state_) return not_connected();
  const auto decision =
      runtime::agree_to(*state_, runtime::Purpose::agree, flags, {}, state_->parts().timeout);
  if (!decision.ok()) return decision.status();
  Consensus consensus;
  consensus.flags = decision->flags;
  for (Rank rank = 0; rank < size(); ++rank)
    if (decision->lost[static_cast<std::size_t>(rank)]) consensus.lost.push_back(rank);
  return consensus;
}

Result<Communicator> Communicator::shrink() {
  if (!state_) return not_connected();
  auto state = runtime::shrink(*state_);
  if (!state.ok()) return state.status();
  return Communicator(*std::move(state));
}

Status Communicator::close() {
  if (!state_) return Status();
  const Status status = state_->close();
  state_.reset();
  return status;
}

Status Communicator::size_error(const char* call, std::size_t input, std::size_t output) {
  return Status(
      StatusCode::invalid_argument,
      fmt::format("{}: {} input elements do not go with {} output elements", call, input, output));
}

}  // namespace tutti

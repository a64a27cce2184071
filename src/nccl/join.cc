// join.cc: see join.hpp.
#include "nccl/join.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/process.hpp"
#include "runtime/access.hpp"
#include "runtime/world.hpp"
#include "runtime/world_offer.hpp"
#include "transport/bootstrap/group.hpp"

namespace tutti::nccl {
namespace {

using transport::BootstrapGroup;

CommunicatorOptions options_of_settings() {
  CommunicatorOptions options;
  settings().apply(options);
  return options;
}

Result<std::shared_ptr<BootstrapGroup>> meet(const JoinRequest& request,
                                             const base::Config& config) {
  transport::BootstrapOptions meeting;
  meeting.rank = request.rank;
  meeting.size = request.size;
  meeting.address = request.id.address;
  meeting.port = request.id.port;
  meeting.secret = request.id.secret;
  meeting.job = "nccl";
  meeting.deadline_ms = config.setup_timeout.count();
  meeting.bad_news = request.bad_news;
  if (request.rank == 0) {
    const Result<transport::Socket> listener = listen_for(request.id);
    TUTTI_TRY(listener);
    // Of the meeting's own: it closes what it is given.
    meeting.listening_socket = ::fcntl(listener->number(), F_DUPFD_CLOEXEC, 0);
    if (meeting.listening_socket < 0) return transport::system_failure("fcntl", errno);
  }
  auto group = transport::join(meeting);
  TUTTI_TRY(group);
  return std::shared_ptr<BootstrapGroup>(*std::move(group));
}

bool may_use_memory(const base::Config& config) {
  return config.transport == base::TransportChoice::automatic ||
         config.transport == base::TransportChoice::memory;
}

// Ranks of one process share their world, which rank 0 makes and holds out until all have it.
Status share_process(BootstrapGroup& group, const base::Config& config, runtime::Members& members) {
  const auto identities = group.exchange(process_identity());
  TUTTI_TRY(identities);
  const bool together =
      std::all_of(identities->begin(), identities->end(),
                  [&](const std::string& each) { return each == identities->front(); });
  if (!together || !may_use_memory(config)) return Status();
  std::optional<runtime::WorldOffer> offer;
  if (members.rank == 0) {
    members.threads =
        transport::MemoryWorld::make(runtime::transport_options(config, members, false));
    offer.emplace(members.threads);
  }
  const auto tickets = group.exchange(offer ? offer->ticket() : std::string());
  TUTTI_TRY(tickets);
  if (!offer) members.threads = runtime::WorldOffer::take(tickets->front());
  TUTTI_TRY(group.exchange({}));
  if (members.threads) return Status();
  return Status(StatusCode::peer_lost, "rank 0 gave up making the communicator", 0);
}

}  // namespace

Result<Communicator> join(const JoinRequest& request) {
  const CommunicatorOptions options = options_of_settings();
  auto config = runtime::effective_config(options);
  TUTTI_TRY(config);
  runtime::Members members;
  members.rank = request.rank;
  members.size = request.size;
  members.secret = request.id.secret;
  members.address = request.id.address;
  members.bad_news = request.bad_news;
  auto tuning = runtime::find_tuning(*config, base::capture_environment(), log());
  TUTTI_TRY(tuning);
  members.tuning = *std::move(tuning);
  std::shared_ptr<BootstrapGroup> group;
  if (request.size > 1) {
    auto met = meet(request, *config);
    TUTTI_TRY(met);
    group = *std::move(met);
    TUTTI_TRY(share_process(*group, *config, members));
  }
  members.exchange = [group](const std::string& mine) -> Result<std::vector<std::string>> {
    if (!group) return std::vector<std::string>{mine};
    return group->exchange(mine);
  };
  auto state = runtime::make_communicator(members, *config, options);
  TUTTI_TRY(state);
  return runtime::CommunicatorAccess::make(*std::move(state));
}

Result<std::vector<Communicator>> join_all(int size) {
  return Communicator::for_threads(size, options_of_settings());
}

}  // namespace tutti::nccl

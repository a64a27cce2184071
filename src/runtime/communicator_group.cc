// Groups: calls are kept until the group ends, then all transfers become one program.
#include <fmt/format.h>

#include "base/try.hpp"
#include "collectives/plan.hpp"
#include "runtime/communicator_state.hpp"

namespace tutti::runtime {
namespace {

std::vector<std::pair<Rank, bool>> pattern_of(std::span<const Transfer> transfers) {
  std::vector<std::pair<Rank, bool>> pattern;
  for (const Transfer& transfer : transfers) pattern.emplace_back(transfer.peer, transfer.sends);
  return pattern;
}

}  // namespace

Status CommunicatorState::add_to_group(const Request& request) {
  TUTTI_TRY(check(request));
  if (request.collective != Collective::send_recv) {
    KeptCall kept{request, nullptr, nullptr};
    if (request.special != nullptr) kept.special = *request.special;
    if (request.blocks != nullptr) {
      kept.blocks = std::make_unique<Blocks>(*request.blocks);
      kept.request.blocks = kept.blocks.get();
    }
    kept_calls_.push_back(std::move(kept));
    return Status();
  }
  const std::size_t bytes = request.count * size_of(request.type);
  if (request.to >= 0) {
    auto* memory = static_cast<std::byte*>(const_cast<void*>(request.input));
    kept_transfers_.push_back({request.to, true, memory, bytes});
  }
  if (request.from >= 0)
    kept_transfers_.push_back(
        {request.from, false, static_cast<std::byte*>(request.output), bytes});
  return Status();
}

Result<Work> CommunicatorState::start_exchange(std::span<const Transfer> transfers) {
  Result<Exchange> exchange = make_exchange(size(), rank(), transfers);
  if (!exchange.ok()) return exchange.status().with_context(fmt::format("rank {}: group", rank()));
  std::vector<std::pair<Rank, bool>> pattern = pattern_of(transfers);
  if (!exchange_plan_ || pattern != exchange_pattern_) {
    auto plan = std::make_shared<collectives::Plan>();
    plan->algorithm = "exchange";
    const collectives::PlannerOptions& options = parts_.planner_options;
    plan->settings.slice_bytes =
        options.slice_bytes > 0 ? options.slice_bytes : options.frame_bytes_max;
    plan->hash = collectives::plan_hash(plan->algorithm, 1, {}, plan->settings);
    plan->program =
        std::make_shared<const collectives::LoweredProgram>(std::move(exchange->program));
    exchange_plan_ = std::move(plan);
    exchange_pattern_ = std::move(pattern);
  }
  Request request;
  request.collective = Collective::send_recv;
  request.type = DataType::uint8;
  request.blocks = &exchange->blocks;
  return start(request);
}

Result<std::vector<Work>> CommunicatorState::group_end() {
  if (group_depth_ == 0)
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {}: group_end() without group_begin()", rank()));
  std::vector<Work> works;
  if (--group_depth_ > 0) return works;
  const auto transfers = std::exchange(kept_transfers_, {});
  const auto calls = std::exchange(kept_calls_, {});
  if (!transfers.empty()) {
    Result<Work> work = start_exchange(transfers);
    TUTTI_TRY(work);
    works.push_back(*std::move(work));
  }
  for (const KeptCall& call : calls) {
    Request request = call.request;
    if (call.special != nullptr) request.special = &call.special;
    Result<Work> work = start(request);
    TUTTI_TRY(work);
    works.push_back(*std::move(work));
  }
  return works;
}

}  // namespace tutti::runtime

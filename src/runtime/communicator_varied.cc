// The Communicator's calls of blocks that differ in size, and its groups.
#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/varied.hpp"
#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using runtime::Block;
using runtime::Blocks;
using runtime::CommunicatorState;

Status not_connected() {
  return Status(StatusCode::invalid_argument, "this communicator is not connected");
}

// A request and the blocks that it points to.
struct VariedCall {
  CommunicatorState::Request request;
  Blocks blocks;

  const CommunicatorState::Request& made() {
    request.blocks = &blocks;
    return request;
  }
};

std::byte* as_bytes(const void* memory) {
  return static_cast<std::byte*>(const_cast<void*>(memory));
}

Status refuse(const CommunicatorState& state, const char* call, const Status& status) {
  return status.with_context(fmt::format("rank {}: {}", state.rank(), call));
}

// All ranks know all sizes, so that different ones are found out.
void agree_on(VariedCall& call, std::span<const Block> blocks) {
  call.request.count = runtime::total(blocks);
  call.request.counts_hash = runtime::hash_of_counts(blocks);
}

// The rank's own block beside those of all. In place it is one of them, in its place.
Status lay_out(const CommunicatorState& state, void* one, bool one_is_written, void* all,
               const BlockLayout& layout, DataType type, std::vector<Block>& one_block,
               std::vector<Block>& all_blocks) {
  const auto own = static_cast<std::size_t>(state.rank());
  // In place, blocks that are read are written, too.
  auto laid_out = runtime::layout_blocks(as_bytes(all), layout, state.size(), type, true);
  if (one_is_written && !laid_out.ok())
    laid_out = runtime::layout_blocks(as_bytes(all), layout, state.size(), type, false);
  TUTTI_TRY(laid_out);
  all_blocks = *std::move(laid_out);
  const std::size_t count = all_blocks[own].count;
  if (count > 0 && one == nullptr)
    return Status(StatusCode::invalid_argument,
                  one_is_written ? "output is null" : "input is null");
  one_block = {{as_bytes(one), count}};
  if (count == 0 || as_bytes(one) == all_blocks[own].memory) return Status();
  if (!runtime::overlap(one_block, all_blocks, type)) return Status();
  return Status(StatusCode::invalid_argument,
                "input and output overlap; in place the rank's own block must lie where it belongs "
                "among all");
}

Result<VariedCall> all_gather_call(const CommunicatorState& state, const void* input, void* output,
                                   const BlockLayout& layout, DataType type) {
  VariedCall call;
  call.request.collective = Collective::all_gather;
  call.request.type = type;
  const Status status = lay_out(state, as_bytes(input), false, output, layout, type,
                                call.blocks.input, call.blocks.output);
  if (!status.ok()) return refuse(state, "all_gather_v", status);
  agree_on(call, call.blocks.output);
  return call;
}

Result<VariedCall> reduce_scatter_call(const CommunicatorState& state, const void* input,
                                       void* output, const BlockLayout& layout, DataType type,
                                       const Reduction& op) {
  VariedCall call;
  call.request.collective = Collective::reduce_scatter;
  call.request.type = type;
  call.request.op = op.op();
  if (op.special() != nullptr) call.request.special = &op.special();
  const Status status = lay_out(state, output, true, as_bytes(input), layout, type,
                                call.blocks.output, call.blocks.input);
  if (!status.ok()) return refuse(state, "reduce_scatter_v", status);
  agree_on(call, call.blocks.input);
  return call;
}

Result<VariedCall> all_to_all_call(const CommunicatorState& state, const void* input,
                                   const BlockLayout& sent, void* output,
                                   const BlockLayout& received, DataType type) {
  VariedCall call;
  call.request.collective = Collective::all_to_all;
  call.request.type = type;
  auto inputs = runtime::layout_blocks(as_bytes(input), sent, state.size(), type, false);
  if (!inputs.ok()) return refuse(state, "all_to_all_v", inputs.status());
  auto outputs = runtime::layout_blocks(as_bytes(output), received, state.size(), type, true);
  if (!outputs.ok()) return refuse(state, "all_to_all_v", outputs.status());
  call.blocks = {*std::move(inputs), *std::move(outputs)};
  const auto own = static_cast<std::size_t>(state.rank());
  const std::size_t kept = call.blocks.input[own].count;
  if (kept != call.blocks.output[own].count)
    return refuse(state, "all_to_all_v",
                  Status(StatusCode::invalid_argument,
                         fmt::format("it sends itself {} elements and receives {} from itself",
                                     kept, call.blocks.output[own].count)));
  if (runtime::overlap(call.blocks.input, call.blocks.output, type))
    return refuse(
        state, "all_to_all_v",
        Status(StatusCode::invalid_argument, "input and output overlap; use two buffers"));
  return call;
}

}  // namespace

Status Communicator::all_gather_v(const void* input, void* output, const BlockLayout& blocks,
                                  DataType type) {
  if (!state_) return not_connected();
  auto call = all_gather_call(*state_, input, output, blocks, type);
  TUTTI_TRY(call);
  return state_->run(call->made());
}

Status Communicator::reduce_scatter_v(const void* input, void* output, const BlockLayout& blocks,
                                      DataType type, const Reduction& op) {
  if (!state_) return not_connected();
  auto call = reduce_scatter_call(*state_, input, output, blocks, type, op);
  TUTTI_TRY(call);
  return state_->run(call->made());
}

Status Communicator::all_to_all_v(const void* input, const BlockLayout& sent, void* output,
                                  const BlockLayout& received, DataType type) {
  if (!state_) return not_connected();
  auto call = all_to_all_call(*state_, input, sent, output, received, type);
  TUTTI_TRY(call);
  return state_->run(call->made());
}

Result<Work> Communicator::all_gather_v_async(const void* input, void* output,
                                              const BlockLayout& blocks, DataType type) {
  if (!state_) return not_connected();
  auto call = all_gather_call(*state_, input, output, blocks, type);
  TUTTI_TRY(call);
  return state_->start(call->made());
}

Result<Work> Communicator::reduce_scatter_v_async(const void* input, void* output,
                                                  const BlockLayout& blocks, DataType type,
                                                  const Reduction& op) {
  if (!state_) return not_connected();
  auto call = reduce_scatter_call(*state_, input, output, blocks, type, op);
  TUTTI_TRY(call);
  return state_->start(call->made());
}

Result<Work> Communicator::all_to_all_v_async(const void* input, const BlockLayout& sent,
                                              void* output, const BlockLayout& received,
                                              DataType type) {
  if (!state_) return not_connected();
  auto call = all_to_all_call(*state_, input, sent, output, received, type);
  TUTTI_TRY(call);
  return state_->start(call->made());
}

Status Communicator::group_begin() {
  if (!state_) return not_connected();
  state_->group_begin();
  return Status();
}

Result<std::vector<Work>> Communicator::group_end_async() {
  if (!state_) return not_connected();
  return state_->group_end();
}

Status Communicator::group_end() {
  Result<std::vector<Work>> works = group_end_async();
  TUTTI_TRY(works);
  Status first;
  for (Work& work : *works) {
    const Status status = work.wait();
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace tutti

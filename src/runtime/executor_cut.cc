// How a call is cut into slices, and by which of the two ways it goes then.
//
// A message that may have to be staged fits a frame. Where it need not be, a slice is better
// longer: its signals, and each new beginning of a copy, cost as much as copying some ten
// kilobytes. But all ranks cut alike, and which buffers can be reached each knows of its peers
// only. So between two ranks, where there is nobody else, both cut when they have met; all others
// by frames.
#include <algorithm>

#include <fmt/format.h>

#include "base/try.hpp"
#include "collectives/cost.hpp"
#include "runtime/executor.hpp"

namespace tutti::runtime {
namespace {

// Slices of a channel in flight. More would only help chains deeper than this.
constexpr std::size_t kWindowMax = 8;
// Of a message that is not staged. Measured on an EPYC, all five collectives, 1 to 16 MiB: at a
// quarter of it calls take up to a fifth longer, at the double those that copy twice no longer find
// in the cache what they have just read.
constexpr std::size_t kDirectSliceBytes = 512 * 1024;
// Of one that is only added up, of which nothing is read again. Measured on a Xeon, reduce_scatter
// past the caches, of 4, 8 and 16 MiB: 283, 581 and 1379 us; in slices as above 298, 594 and 1471.
constexpr std::size_t kSummedSliceBytes = 2 * 1024 * 1024;
// Of one that the system copies. Measured on a Xeon, all_gather of 16 MiB: 1.6 ms, and 2.0 in
// slices as above.
constexpr std::size_t kAttachedSliceBytes = 16 * 1024 * 1024;

std::size_t index(int value) { return static_cast<std::size_t>(value); }

std::size_t direct_slice_bytes(Collective collective) {
  return collective == Collective::reduce_scatter ? kSummedSliceBytes : kDirectSliceBytes;
}

}  // namespace

Status Executor::choose_cut(const collectives::Plan& plan) {
  const Result<std::size_t> slices = choose_slices(plan);
  TUTTI_TRY(slices);
  slices_by_frame_ = slices_if_direct_ = *slices;
  // Who wants shorter slices than frames has a reason.
  const bool may_be_longer = call_.signature.direct && transport_.size() == 2 &&
                             !program_->peers().empty() &&
                             plan.settings.slice_bytes >= frame_bytes_max_;
  laid_to_attach_ = attaches();
  if (may_be_longer) {
    const std::size_t bytes =
        attaches() ? kAttachedSliceBytes : direct_slice_bytes(call_.signature.collective);
    slices_if_direct_ = std::min(
        *slices, collectives::slices_needed(program_->lowered().shape, call_.signature.count,
                                            element_bytes_, plan.settings.channels, bytes));
  }
  // As it was the last time that there was anything to decide.
  cut_into(long_slices_ ? slices_if_direct_ : slices_by_frame_);
  return Status();
}

void Executor::cut_into(std::size_t slices) {
  slices_ = slices;
  geometry_ = collectives::Geometry(call_.signature.count, program_->lowered().shape.chunks,
                                    static_cast<int>(channels_.size()), slices);
  window_ = std::min(slices_, kWindowMax);
  for (Channel& channel : channels_) {
    channel.phases.resize(window_ * program_->steps().size());
    channel.first.resize(window_);
    channel.left.resize(window_);
  }
  choose_way();
}

// False while it cannot be told. A rank whose own memory cannot be reached need not wait for the
// other one, which will find the same.
bool Executor::decide_cut() {
  const bool any_staged = program_->any_staged();
  if (!any_staged && !peers_.front().settled) return false;
  cut_undecided_ = false;
  long_slices_ = !any_staged;
  const std::size_t slices = long_slices_ ? slices_if_direct_ : slices_by_frame_;
  if (slices == slices_) return true;
  cut_into(slices);
  begin_slices();
  return true;
}

void Executor::begin_slices() {
  short_done_ = {};
  if (short_->empty()) reset_channels();
  slices_left_ = channels_.size() * slices_;
}

void Executor::reset_channels() {
  for (Channel& channel : channels_) {
    channel.first_slice = 0;
    std::fill(channel.phases.begin(), channel.phases.end(), Phase::waiting);
    std::fill(channel.first.begin(), channel.first.end(), 0);
    std::fill(channel.left.begin(), channel.left.end(),
              static_cast<std::int32_t>(program_->steps().size()));
  }
}

// Whether the call is one of those that have a short program.
void Executor::choose_way() {
  const std::size_t chunk_bytes =
      call_.signature.count * element_bytes_ / index(program_->lowered().shape.chunks);
  const bool whole =
      channels_.size() == 1 && slices_ == 1 && call_.blocks == nullptr && !is_long(chunk_bytes);
  if (!whole || !ShortProgram::fits(*program_)) return short_->clear();
  short_->lay_out(*program_, geometry_, element_bytes_, sent_at_once());
}

// The longest message that is handed over with the record.
std::size_t Executor::sent_at_once() const {
  if (moves_itself_) return 0;
  const auto& peers = program_->peers();
  const bool pair = transport_.size() == 2 && peers_read_at_once_ && neighbours_.empty() &&
                    peers.size() == 1 && peers[0].sends.size() <= 1 &&
                    peers[0].receives.size() <= 1;
  return std::min(pair ? collectives::kPairSentAtOnceBytes : collectives::kSentAtOnceBytes,
                  frame_bytes_max_ - kRecordRoomMax);
}

// So that every message fits a frame.
Result<std::size_t> Executor::choose_slices(const collectives::Plan& plan) {
  const ScheduleShape& shape = plan.program->shape;
  const std::size_t bytes = std::min(plan.settings.slice_bytes, frame_bytes_max_);
  slice_elements_ = bytes / (element_bytes_ * index(shape.message_chunks_max));
  const std::size_t slices =
      call_.blocks != nullptr
          ? (slice_elements_ == 0 ? 0 : measure_blocks())
          : collectives::slices_needed(shape, call_.signature.count, element_bytes_,
                                       plan.settings.channels, bytes);
  if (slices > 0) return slices;
  return Status(StatusCode::unsupported,
                fmt::format("algorithm {}: slices of {} bytes cannot hold {} chunks of {}; use "
                            "larger slices (TUTTI_SLICE_BYTES) or another algorithm",
                            plan.algorithm, bytes, shape.message_chunks_max,
                            to_string(call_.signature.type)));
}

// The slices of every message where blocks differ in size; returns the largest number.
std::size_t Executor::measure_blocks() {
  operand_slices_.clear();
  std::size_t most = 1;
  for (const CallStep& step : program_->steps()) {
    const CallOperand& memory = program_->operand(step.in_memory);
    std::uint32_t slices = 1;
    for (int piece = 0; piece < step.pieces; ++piece)
      slices = std::max(
          slices,
          slices_of(call_.blocks->at(memory.buffer, memory.chunk + piece).count, slice_elements_));
    operand_slices_.resize(step.end, slices);
    most = std::max<std::size_t>(most, slices);
  }
  return most;
}

}  // namespace tutti::runtime

// copy_meeting.cc: see copy_meeting.hpp.
#include "runtime/gpu/host/copy_meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/assert.hpp"
#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

std::size_t idx(Rank rank) { return static_cast<std::size_t>(rank); }

std::size_t block_bytes(const GpuCall& call) { return call.count * size_of(call.type); }

bool is_same_call(const GpuCall& a, const GpuCall& b) {
  return a.collective == b.collective && a.type == b.type && a.count == b.count && a.root == b.root;
}

}  // namespace

std::vector<BlockCopy> copies_of(Collective collective, Rank root, int ranks) {
  std::vector<BlockCopy> copies;
  for (Rank from = 0; from < ranks; ++from)
    for (int distance = 0; distance < ranks; ++distance) {
      const Rank to = (from + distance) % ranks;
      if (collective == Collective::all_gather)
        copies.push_back({from, to, 0, idx(from)});
      else if (collective == Collective::all_to_all)
        copies.push_back({from, to, idx(to), idx(from)});
      else if (collective == Collective::broadcast && from == root)
        copies.push_back({from, to, 0, 0});
      else if (collective == Collective::scatter && from == root)
        copies.push_back({from, to, idx(to), 0});
      else if (collective == Collective::gather && to == root)
        copies.push_back({from, to, 0, idx(from)});
    }
  return copies;
}

Result<std::unique_ptr<CopyMeeting>> CopyMeeting::make(GpuWorld& world) {
  std::unique_ptr<CopyMeeting> meeting(new CopyMeeting(world));
  meeting->guests_.resize(idx(world.ranks()));
  for (Rank rank = 0; rank < world.ranks(); ++rank) {
    const auto event = world.rank(rank).device().make_event();
    TUTTI_TRY(event);
    meeting->guests_[idx(rank)].event = *event;
  }
  return meeting;
}

CopyMeeting::~CopyMeeting() {
  for (Rank rank = 0; rank < world_.ranks(); ++rank)
    if (EventHandle const event = guests_[idx(rank)].event; event != nullptr)
      world_.rank(rank).device().destroy_event(event);
}

Status CopyMeeting::come(Rank rank, const GpuCall& call, StreamHandle stream) {
  GpuRank& mine = world_.rank(rank);
  TUTTI_TRY(mine.failure());
  TUTTI_TRY(mine.check(call));
  const auto capture = mine.device().capture_of(stream);
  TUTTI_TRY(capture);
  const std::lock_guard lock(mutex_);
  Guest& guest = guests_[idx(rank)];
  TUTTI_ASSERT(!guest.is_here && !guest.met, "a rank asks how its call ended before the next one");
  TUTTI_TRY(failure_);
  guest.is_here = true;
  guest.call = call;
  guest.stream = stream;
  guest.capture = *capture;
  last_ = rank;
  if (++here_ == world_.ranks()) end(hold());
  return Status();
}

std::optional<Met> CopyMeeting::look(Rank rank) {
  const std::lock_guard lock(mutex_);
  return std::exchange(guests_[idx(rank)].met, std::nullopt);
}

Met CopyMeeting::wait(Rank rank) {
  const std::chrono::nanoseconds timeout = world_.options().timeout;
  std::unique_lock lock(mutex_);
  Guest& guest = guests_[idx(rank)];
  const auto over = [&] { return guest.met.has_value(); };
  if (timeout.count() == 0) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_for(lock, timeout, over)) {
    const Rank missing = first_missing();
    failure_ =
        Status(StatusCode::timeout,
               fmt::format("rank {}: {}: rank {} is missing: it has not called within {} ms", rank,
                           to_string(guest.call.collective), missing,
                           std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()),
               missing);
    end({failure_, false, {}});
  }
  return *std::exchange(guest.met, std::nullopt);
}

void CopyMeeting::withdraw(Rank rank) {
  const std::lock_guard lock(mutex_);
  Guest& guest = guests_[idx(rank)];
  if (std::exchange(guest.is_here, false)) --here_;
  guest.met.reset();
}

void CopyMeeting::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = why;
  end({failure_, false, {}});
}

Rank CopyMeeting::first_missing() const {
  for (Rank rank = 0; rank < world_.ranks(); ++rank)
    if (!guests_[idx(rank)].is_here) return rank;
  return Status::kUnknownRank;
}

// Tells all who are here.
void CopyMeeting::end(const Met& met) {
  for (Guest& guest : guests_)
    if (std::exchange(guest.is_here, false)) guest.met = met;
  here_ = 0;
  changed_.notify_all();
}

// All are here.
Met CopyMeeting::hold() {
  if (std::string why = why_kernels(); !why.empty()) return {Status(), false, std::move(why)};
  const Status status = enqueue(last_);
  if (!status.ok()) failure_ = status;
  return {status, status.ok(), {}};
}

// Whether copies can make the call is decided here for all. Empty: they can.
std::string CopyMeeting::why_kernels() const {
  const Guest& first = guests_.front();
  for (Rank rank = 0; rank < world_.ranks(); ++rank) {
    const Guest& guest = guests_[idx(rank)];
    if (!is_same_call(guest.call, first.call)) return "ranks make different calls";
    if (guest.capture != first.capture)
      return "ranks' streams are captured into different graphs, and no copy can be in two";
    if (guest.call.collective == Collective::all_to_all && guest.call.input == guest.call.output &&
        guest.call.count > 0)
      return "an exchange in place is overwritten before it is read";
    if (std::string why = why_unreachable(rank); !why.empty()) return why;
  }
  return {};
}

std::string CopyMeeting::why_unreachable(Rank rank) const {
  Device& device = world_.rank(rank).device();
  const GpuCall& call = guests_[idx(rank)].call;
  bool has_peers = false;
  for (Rank peer = 0; peer < world_.ranks(); ++peer)
    has_peers |= world_.rank(peer).device().id() != device.id();
  if (!has_peers || call.count == 0) return {};
  ScheduleShape shape;
  shape.collective = call.collective;
  shape.ranks = world_.ranks();
  for (const auto& [memory, buffer] :
       {std::pair(call.input, Buffer::input),
        std::pair(static_cast<const void*>(call.output), Buffer::output)}) {
    const auto blocks = static_cast<std::size_t>(std::max(1, block_count(shape, buffer)));
    if (memory != nullptr && !device.is_reachable(memory, blocks * call.count * size_of(call.type)))
      return fmt::format("rank {}'s memory cannot be reached by other devices", rank);
  }
  return {};
}

// All streams meet in the last one's, go on together, and meet there again: nobody's output is
// written while he may still use it, and nobody's input is his again while it is read.
Status CopyMeeting::enqueue(Rank last) {
  const bool is_captured = guests_.front().capture != 0;
  const GpuCall& call = guests_.front().call;
  if (!is_captured)
    for (Rank rank = 0; rank < world_.ranks(); ++rank)
      TUTTI_TRY(world_.rank(rank).follow(guests_[idx(rank)].stream));
  TUTTI_TRY(gather_streams(last));
  for (const BlockCopy& copy : copies_of(call.collective, call.root, world_.ranks()))
    TUTTI_TRY(enqueue_copy(copy));
  TUTTI_TRY(gather_streams(last));
  if (!is_captured)
    for (Rank rank = 0; rank < world_.ranks(); ++rank)
      TUTTI_TRY(world_.rank(rank).mark(guests_[idx(rank)].stream));
  return Status();
}

Status CopyMeeting::gather_streams(Rank last) {
  const auto device = [&](Rank rank) -> Device& { return world_.rank(rank).device(); };
  const Guest& hub = guests_[idx(last)];
  for (Rank rank = 0; rank < world_.ranks(); ++rank) {
    if (rank == last) continue;
    const Guest& guest = guests_[idx(rank)];
    TUTTI_TRY(device(rank).record(guest.event, guest.stream));
    TUTTI_TRY(device(last).wait_event(hub.stream, guest.event));
  }
  TUTTI_TRY(device(last).record(hub.event, hub.stream));
  for (Rank rank = 0; rank < world_.ranks(); ++rank)
    if (rank != last) TUTTI_TRY(device(rank).wait_event(guests_[idx(rank)].stream, hub.event));
  return Status();
}

Status CopyMeeting::enqueue_copy(const BlockCopy& copy) {
  const Guest& from = guests_[idx(copy.from)];
  const Guest& to = guests_[idx(copy.to)];
  const std::size_t bytes = block_bytes(from.call);
  const auto* const source =
      static_cast<const std::byte*>(from.call.input) + copy.input_block * bytes;
  auto* const destination = static_cast<std::byte*>(to.call.output) + copy.output_block * bytes;
  if (bytes == 0 || source == destination) return Status();  // in place
  return world_.rank(copy.from).device().copy(destination, source, bytes, from.stream);
}

}  // namespace tutti::runtime::gpu

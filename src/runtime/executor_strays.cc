// Calls of peers that differ from this rank's and that no data tells of: found, or asked about,
// while nothing moves.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/executor.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

std::size_t index(int value) { return static_cast<std::size_t>(value); }

}  // namespace

// A rank that made another call than its peers may have sent to one that expects nothing of it, and
// neither end would ever notice: the record stays at the head of a queue that nobody reads.
void Executor::find_strays() {
  const std::size_t channels = index(transport_.channel_count());
  for (Rank caller = transport_.caller(0); caller >= 0; caller = transport_.caller(0, caller)) {
    const Result<Endpoint*> endpoint = transport_.endpoint(caller, 0);
    if (endpoint.ok()) streams_[index(caller) * channels].endpoint = *endpoint;
  }
  for (std::size_t s = 0; s < streams_.size() && status_.ok(); s += channels) {
    Frame frame;
    if (streams_[s].endpoint == nullptr || !streams_[s].endpoint->peek(frame)) continue;
    const Rank from = static_cast<Rank>(s / channels);
    if (is_stray(from, frame))
      fail(Status(StatusCode::mismatch,
                  fmt::format("ranks made different calls: rank {} called {}, and {} takes no part "
                              "in it; rank {} called {}",
                              from, to_string(decode_arrival(frame.payload)->signature),
                              transport_.rank(), transport_.rank(), to_string(call_.signature))));
  }
}

void Executor::answer_inquiry(Rank from, std::span<const std::byte> record) {
  const auto theirs = decode_signature(record);
  if (!status_.ok() || !theirs || theirs->sequence == 0) return;
  const auto& mine = records_[theirs->sequence % kRecordsKept];
  const auto known = decode_signature(mine);
  if (!known || known->sequence != theirs->sequence) return;
  if (std::equal(mine.begin(), mine.end(), record.begin())) return;
  fail(Status(StatusCode::mismatch, disagreement(transport_.rank(), *known, from, *theirs)));
}

bool Executor::is_stray(Rank from, const Frame& frame) const {
  const auto tag = static_cast<FrameTag>(frame.tag);
  if (tag != FrameTag::arrival && tag != FrameTag::arrival_with_data) return false;
  const auto arrival = decode_arrival(frame.payload);
  if (!arrival) return false;
  // Calls between two ranks are not numbered; those that check others are numbered apart.
  const std::uint32_t theirs = arrival->signature.sequence;
  const std::uint32_t mine = call_.signature.sequence;
  if (theirs == 0 || mine == 0 || ((theirs ^ mine) >> 31) != 0) return false;
  if (theirs < mine) return true;
  if (theirs > mine) return false;
  if (is_combining()) return true;
  for (const CallPeer& peer : program_->peers())
    if (peer.rank == from && (call_.signature.direct || !peer.receives.empty())) return false;
  return true;
}

}  // namespace tutti::runtime

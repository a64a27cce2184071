// Copies each part while its version stands still, then looks whether it makes sense.
#include "runtime/flight/reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/assert.hpp"

namespace tutti::runtime::flight {
namespace {

constexpr std::uint64_t kRanksMax = 1u << 24;

Status bad(std::string text) { return Status(StatusCode::corrupt_data, std::move(text)); }

// What is not plain text is shown as '?', so that nothing can play with a terminal.
template <typename Values>
std::string text_in(const Values& values, std::size_t from) {
  const auto* bytes = reinterpret_cast<const char*>(values.data() + from);
  const std::size_t room = (values.size() - from) * sizeof(values[0]);
  std::string text(bytes, std::find(bytes, bytes + room, '\0'));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

Rank rank_in(std::uint64_t word) {
  return word < kRanksMax ? static_cast<Rank>(word) : Status::kUnknownRank;
}

bool whole(std::uint64_t version) { return version != 0 && version % 2 == 0; }

// Tells seconds from the ticks of the process that wrote.
class Clock {
 public:
  Clock(const Header& header, const Moment& now) : now_(now.ticks) {
    const std::uint64_t ticks = header.made_ticks.load(std::memory_order_relaxed);
    const std::uint64_t ns = header.made_ns.load(std::memory_order_relaxed);
    if (now.ticks > ticks && now.ns > ns)
      seconds_per_tick_ =
          static_cast<double>(now.ns - ns) / static_cast<double>(now.ticks - ticks) * 1e-9;
  }

  double ago(std::uint64_t ticks) const { return between(ticks, now_); }
  double between(std::uint64_t earlier, std::uint64_t later) const {
    return later > earlier ? static_cast<double>(later - earlier) * seconds_per_tick_ : 0;
  }

 private:
  std::uint64_t now_;
  double seconds_per_tick_ = 0;
};

std::optional<CallView> read_call(const Section<kCallWords>& call, std::uint64_t number,
                                  const Clock& clock) {
  Section<kCallWords>::Values values;
  // Any other version is of an earlier or later call in the same place.
  const std::uint64_t writes = (number - 1) / kCallsKept + 1;
  if (call.read(values) != 2 * writes) return std::nullopt;
  std::array<std::byte, kDirectArrivalBytes> record{};  // without memory references
  std::memcpy(record.data(), &values[kSignature], kArrivalBytes);
  const std::optional<Arrival> arrival = decode_arrival(record);
  if (!arrival) return std::nullopt;
  CallView view;
  view.number = number;
  view.signature = arrival->signature;
  view.started_ago = clock.ago(values[kStarted]);
  view.running = values[kOutcome] == kRunning;
  if (view.running) return view;
  const std::uint64_t outcome = values[kOutcome] - kFinished;
  if (outcome > static_cast<std::uint64_t>(StatusCode::internal)) return std::nullopt;
  view.outcome = static_cast<StatusCode>(outcome);
  view.took = clock.between(values[kStarted], values[kEnded]);
  return view;
}

void read_calls(const Slot& slot, const Clock& clock, CommunicatorView& view) {
  view.begun = slot.begun.load(std::memory_order_acquire);
  const std::uint64_t kept = std::min<std::uint64_t>(view.begun, kCallsKept);
  for (std::uint64_t number = view.begun - kept + 1; number <= view.begun && kept > 0; ++number) {
    auto call = read_call(slot.calls[(number - 1) % kCallsKept], number, clock);
    if (call) view.calls.push_back(*call);
    if (number == std::numeric_limits<std::uint64_t>::max()) break;
  }
}

void read_wait(const Slot& slot, const Clock& clock, CommunicatorView& view) {
  decltype(slot.wait)::Values values;
  if (!whole(slot.wait.read(values)) || values[kWaitCall] == 0) return;
  if (values[kWaitCall] != view.begun || !view.in_call()) return;
  WaitView wait;
  for (std::size_t i = 0; i < kAwaitedMax && values[kWaitRanks + i] != 0; ++i)
    if (const std::uint64_t rank = values[kWaitRanks + i] - 1;
        rank < static_cast<std::uint64_t>(view.size))
      wait.ranks.push_back(static_cast<Rank>(rank));
  if (wait.ranks.empty()) return;
  wait.what = text_in(values, kWaitText);
  wait.since_ago = clock.ago(values[kWaitSince]);
  view.wait = std::move(wait);
}

void read_failure(const Slot& slot, const Clock& clock, CommunicatorView& view) {
  decltype(slot.failure)::Values values;
  if (!whole(slot.failure.read(values)) || values[kFailureCode] == 0 ||
      values[kFailureCode] > static_cast<std::uint64_t>(StatusCode::internal))
    return;
  view.failure =
      FailureView{static_cast<StatusCode>(values[kFailureCode]), rank_in(values[kCulprit]),
                  text_in(values, kFailureText), clock.ago(values[kFailedAt])};
}

void read_memory(const Slot& slot, CommunicatorView& view) {
  Section<kMemoryWords>::Values values;
  if (!whole(slot.memory.read(values))) return;
  view.memory.transport_bytes = values[kTransportBytes];
  view.memory.scratch_bytes = values[kScratchBytes];
  view.memory.plan_bytes = values[kPlanBytes];
  view.memory.recorder_bytes = sizeof(Slot);
  view.queued = values[kQueued];
}

std::optional<CommunicatorView> read_slot(const Slot& slot, const Header& header,
                                          const Moment& now) {
  if (slot.live.load(std::memory_order_acquire) != 1) return std::nullopt;
  Section<kIdentityWords>::Values values;
  if (!whole(slot.identity.read(values))) return std::nullopt;
  if (values[kSize] == 0 || values[kSize] > kRanksMax || values[kRank] >= values[kSize])
    return std::nullopt;
  const Clock clock(header, now);
  CommunicatorView view;
  view.job = values[kJob];
  view.context = values[kContext];
  view.rank = static_cast<Rank>(values[kRank]);
  view.size = static_cast<int>(values[kSize]);
  view.made_ago = clock.ago(values[kMade]);
  view.transport = text_in(values, kTransport);
  read_calls(slot, clock, view);
  read_wait(slot, clock, view);
  read_failure(slot, clock, view);
  read_memory(slot, view);
  return view;
}

}  // namespace

std::optional<CommunicatorView> view_of(const Log& log) {
  if (!log.on()) return std::nullopt;
  return read_slot(*log.slot(), log.header(), Moment::now());
}

Result<ProcessView> read(std::span<const std::byte> memory, const Moment& now) {
  if (memory.size() < sizeof(File))
    return bad(fmt::format("{} bytes are too few for a flight recorder, which has {}",
                           memory.size(), sizeof(File)));
  TUTTI_ASSERT(std::bit_cast<std::uintptr_t>(memory.data()) % alignof(File) == 0,
               "a recorder is mapped, and so aligned to a page");
  // Only words are read, all of them atomic, so that no value in there can do harm.
  const File& file = *reinterpret_cast<const File*>(memory.data());
  if (file.header.magic.load(std::memory_order_acquire) != kMagic)
    return bad("this is no flight recorder, or one of another version of Tutti");
  if (file.header.file_bytes.load(std::memory_order_relaxed) != sizeof(File))
    return bad("the flight recorder is of another version of Tutti");
  ProcessView view;
  view.process = file.header.process.load(std::memory_order_relaxed);
  view.left_out = file.header.left_out.load(std::memory_order_relaxed);
  for (const Slot& slot : file.slots)
    if (auto communicator = read_slot(slot, file.header, now))
      view.communicators.push_back(*std::move(communicator));
  return view;
}

}  // namespace tutti::runtime::flight

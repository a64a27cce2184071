// The memory of a flight recorder, as another process may have left it.
//
// The file is large and mostly zeros, so an input says which words of a plausible one to change and
// into what. Beyond not crashing: what is read can be shown and judged; memory stays bounded.
#include <array>
#include <memory>
#include <span>

#include "fuzz.hpp"
#include "runtime/flight/chain.hpp"
#include "runtime/flight/reader.hpp"
#include "runtime/flight/text.hpp"

namespace tutti::fuzz {

using namespace tutti::runtime::flight;

namespace {

using Pages = std::vector<Page>;

// A file as a process with three communicators would have it.
Pages plausible() {
  Pages pages(sizeof(File) / sizeof(Page));
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  TUTTI_ASSERT(recorder != nullptr, "there is memory");
  std::array<std::unique_ptr<Log>, 3> logs;
  for (Rank r = 0; r < 3; ++r) {
    auto& log = logs[static_cast<std::size_t>(r)];
    log = std::make_unique<Log>(recorder, Identity{7, 1, r, 3, "shm"});
    for (std::uint32_t call = 1; call < 60; ++call) {
      log->begin({.sequence = call, .count = 5});
      if (call < 59) log->end(StatusCode::ok);
    }
    const std::array<Rank, 2> awaited = {(r + 1) % 3, (r + 2) % 3};
    log->wait(awaited, "data", 5);
  }
  logs[2]->fail(Status(StatusCode::timeout, "too late", 1));
  std::memcpy(pages.data(), static_cast<const void*>(&recorder->file()), sizeof(File));
  return pages;
}

}  // namespace

std::size_t input_bytes_max() { return 512; }

void run(std::string_view input) {
  static const Pages start = plausible();
  Pages pages = start;
  Decisions decisions(input);
  while (!decisions.done()) {
    // Mostly within the header and the first slots.
    const auto where = decisions.number<std::uint16_t>();
    const std::size_t word = where % (sizeof(Header) / 8 + 4 * sizeof(Slot) / 8);
    pages[word / std::size(Page().words)].words[word % std::size(Page().words)] =
        decisions.number<std::uint64_t>();
  }
  const AllocationLimit limit(std::size_t{4} << 20);
  const auto view = read(std::as_bytes(std::span(pages)), {1'000'000'000, 1'000'000'000});
  if (!view.ok()) return;
  Process process;
  process.pid = 1;
  process.recorder = *view;
  const std::vector<Process> all = {process};
  for (const CommunicatorView& communicator : view->communicators) {
    TUTTI_ASSERT(communicator.rank < communicator.size, "a rank is one of the communicator");
    TUTTI_ASSERT(communicator.calls.size() <= kCallsKept, "no more calls than there is room for");
    for (const CallView& call : communicator.calls)
      TUTTI_ASSERT(call.number > 0 && call.number <= communicator.begun, "calls are numbered");
    const std::string text = describe_state(communicator) +
                             describe_failure(communicator, kCallsKept) +
                             describe_ranks(all, communicator, "");
    for (const char c : text) TUTTI_ASSERT(c == '\n' || (c >= ' ' && c <= '~'), "plain text");
    if (const auto culprit = find_culprit_of(all, communicator))
      TUTTI_ASSERT(!to_string(*culprit).empty(), "a culprit can be shown");
  }
}

std::vector<std::string> seeds() {
  const auto change = [](std::size_t word, std::uint64_t value) {
    return std::string(Script().number(static_cast<std::uint16_t>(word)).number(value));
  };
  constexpr std::size_t kSlot = sizeof(Header) / 8;
  return {"",
          change(0, 1),
          change(kSlot + 1 + kRank, 5),
          change(kSlot + 1 + kSize, ~std::uint64_t{0}),
          change(kSlot + 8, ~std::uint64_t{0}) + change(kSlot + 40, 3),
          change(kSlot + 8, 0),
          change(4, 0) + change(5, ~std::uint64_t{0})};
}

}  // namespace tutti::fuzz

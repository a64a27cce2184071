// The memory of a flight recorder, as another process may have left it.
//
// The file is large and mostly zeros, so an input says which words of a plausible one to change and
// into what. Beyond not crashing: what is read can be shown and judged; memory stays bounded.
//
// An input costs what it changes: the file is made once and mended afterwards, and calls that read
// as they were are not shown again, for a call's line says nothing but what the call is.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "fuzz.hpp"
#include "runtime/flight/chain.hpp"
#include "runtime/flight/reader.hpp"
#include "runtime/flight/text.hpp"

namespace tutti::fuzz {

using namespace tutti::runtime::flight;

namespace {

using Pages = std::vector<Page>;

constexpr Moment kNow = {1'000'000'000, 1'000'000'000};

// Times, and what else is another in each process, as if they were always the same.
void settle(File& file) {
  file.header.process.store(1);
  file.header.made_ticks.store(1'000);
  file.header.made_ns.store(1'000);
  for (Slot& slot : file.slots) {
    if (slot.live.load() == 0) continue;
    slot.identity.words[kMade].store(2'000);
    slot.failure.words[kFailedAt].store(800'000'000);
    for (std::size_t i = 0; i < kCallsKept; ++i) {
      auto& words = slot.calls[i].words;
      words[kStarted].store(1'000'000 * (i + 1));
      if (words[kEnded].load() != 0) words[kEnded].store(1'000'000 * (i + 1) + 500);
    }
  }
}

// A file as a process with three communicators would have it, always the same. The first has made
// more calls than are kept, the others just enough to be in the same one.
Pages plausible() {
  constexpr std::uint32_t kLast = kCallsKept + 11;
  Pages pages(sizeof(File) / sizeof(Page));
  const std::shared_ptr<Recorder> recorder = Recorder::make();
  TUTTI_ASSERT(recorder != nullptr, "there is memory");
  std::array<std::unique_ptr<Log>, 3> logs;
  for (Rank r = 0; r < 3; ++r) {
    auto& log = logs[static_cast<std::size_t>(r)];
    log = std::make_unique<Log>(recorder, Identity{7, 1, r, 3, "shm"});
    for (std::uint32_t call = r == 0 ? 1 : kLast - 1; call <= kLast; ++call) {
      std::array<std::byte, runtime::kArrivalBytes> record;
      runtime::encode_signature({.sequence = call, .count = 5}, record);
      log->begin(record);
      if (call < kLast) log->end(StatusCode::ok);
    }
    const std::array<Rank, 2> awaited = {(r + 1) % 3, (r + 2) % 3};
    log->wait(awaited, "data", 5);
  }
  logs[2]->fail(Status(StatusCode::timeout, "too late", 1));
  std::memcpy(pages.data(), static_cast<const void*>(&recorder->file()), sizeof(File));
  settle(*reinterpret_cast<File*>(pages.data()));
  return pages;
}

// Words of a file, which are put back in the end.
class Changes {
 public:
  explicit Changes(Pages& pages) : pages_(pages) {}
  ~Changes() {
    std::for_each(before_.rbegin(), before_.rend(),
                  [&](const auto& word) { at(word.first) = word.second; });
  }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  void set(std::size_t word, std::uint64_t value) {
    before_.emplace_back(word, std::exchange(at(word), value));
  }

 private:
  std::uint64_t& at(std::size_t word) {
    constexpr std::size_t kWords = std::size(Page().words);
    return pages_[word / kWords].words[word % kWords];
  }

  Pages& pages_;
  std::vector<std::pair<std::size_t, std::uint64_t>> before_;
};

ProcessView read_all(const Pages& pages) {
  auto view = read(std::as_bytes(std::span(pages)), kNow);
  return view.ok() ? std::move(*view) : ProcessView();
}

// What describe_failure() shows, without the calls that `before` has, too, whose numbers have no
// gaps.
CommunicatorView changed(const CommunicatorView& view, const ProcessView& before) {
  CommunicatorView shown;
  shown.failure = view.failure;
  for (const CallView& call : view.calls) {
    const bool known =
        std::any_of(before.communicators.begin(), before.communicators.end(),
                    [&](const CommunicatorView& other) {
                      const auto place = call.number - other.calls.front().number;
                      return place < other.calls.size() && other.calls[place] == call;
                    });
    if (!known) shown.calls.push_back(call);
  }
  return shown;
}

TUTTI_FUZZ_PLAIN bool is_plain(const std::string& text) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end; ++at)
    if (*at != '\n' && (*at < ' ' || *at > '~')) return false;
  return true;
}

// Whether describe_ranks() says the same of both.
bool same_ranks(const CommunicatorView& a, const CommunicatorView& b) {
  return a.job == b.job && a.context == b.context && a.size == b.size;
}

// `before`: what has been shown and judged already.
void check(ProcessView view, const ProcessView& before) {
  std::vector<Process> all(1);
  all.front().pid = 1;
  all.front().recorder = std::move(view);
  const std::vector<CommunicatorView>& communicators = all.front().recorder.communicators;
  for (const CommunicatorView& communicator : communicators) {
    TUTTI_ASSERT(communicator.rank < communicator.size, "a rank is one of the communicator");
    TUTTI_ASSERT(communicator.calls.size() <= kCallsKept, "no more calls than there is room for");
    for (const CallView& call : communicator.calls)
      TUTTI_ASSERT(call.number > 0 && call.number <= communicator.begun, "calls are numbered");
    TUTTI_ASSERT(is_plain(describe_state(communicator)) &&
                     is_plain(describe_failure(changed(communicator, before), kCallsKept)),
                 "plain text");
    const auto first = std::find_if(
        communicators.begin(), communicators.end(),
        [&](const CommunicatorView& other) { return same_ranks(other, communicator); });
    if (&*first == &communicator)
      TUTTI_ASSERT(is_plain(describe_ranks(all, communicator, "")), "plain text");
    if (const auto culprit = find_culprit_of(all, communicator))
      TUTTI_ASSERT(!to_string(*culprit).empty(), "a culprit can be shown");
  }
}

// The plausible file, and what it says.
struct Start {
  Pages pages = plausible();
  ProcessView view = read_all(pages);

  Start() {
    TUTTI_ASSERT(view.communicators.size() == 3, "the file is a good one");
    check(view, ProcessView());
  }
};

}  // namespace

std::size_t input_bytes_max() { return 512; }

void run(std::string_view input) {
  static Start start;
  Changes changes(start.pages);
  for (Decisions decisions(input); !decisions.done();) {
    // Mostly within the header and the first slots.
    const auto where = decisions.number<std::uint16_t>();
    changes.set(where % (sizeof(Header) / 8 + 4 * sizeof(Slot) / 8),
                decisions.number<std::uint64_t>());
  }
  const AllocationLimit limit(std::size_t{4} << 20);
  check(read_all(start.pages), start.view);
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

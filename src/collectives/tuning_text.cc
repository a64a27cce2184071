// The text of a tuning table; see tuning.hpp for what it looks like. It may come from anywhere:
// sizes are bounded, and every failure names its line and the word that is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>

#include "base/text.hpp"
#include "base/try.hpp"
#include "collectives/tuning.hpp"

namespace tutti::collectives {
namespace {

constexpr std::string_view kHeader = "tutti-tuning 1";
constexpr std::size_t kMaxTextBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxMachineBytes = 256;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxPlaces = 1024;
constexpr std::size_t kMaxSliceBytes = std::size_t{1} << 30;
constexpr std::int64_t kMaxRanks = 1 << 17;
constexpr std::int64_t kMaxChannels = 64;
constexpr double kMaxUs = 1e12;
constexpr std::string_view kModel = "model";  // the algorithm's name where the model chooses
constexpr std::string_view kTransports[] = {"memory", "shm", "tcp"};

Status corrupt(std::string text) { return {StatusCode::corrupt_data, std::move(text)}; }

// The word as an error may show it.
std::string shown(std::string_view word) {
  std::string text(word.substr(0, 60));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return "'" + text + "'";
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words = base::split(line, ' ');
  words.erase(std::remove(words.begin(), words.end(), std::string_view()), words.end());
  return words;
}

// ---- Values behind key= ----

Status read_number(std::string_view text, double lowest, double highest, double& number) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return corrupt("not a number");
  if (!(value >= lowest && value <= highest))
    return corrupt(fmt::format("{:g} to {:g} are possible", lowest, highest));
  number = value;
  return {};
}

Status read_count(std::string_view text, std::int64_t highest, int& number) {
  const Result<std::int64_t> value = base::parse_integer(text, 1, highest);
  if (!value.ok()) return corrupt(value.status().message());
  number = static_cast<int>(*value);
  return {};
}

Status read_bytes(std::string_view text, std::size_t& bytes) {
  const Result<std::uint64_t> value = base::parse_bytes(text);
  if (!value.ok()) return corrupt(value.status().message());
  bytes = static_cast<std::size_t>(*value);
  return {};
}

Status read_slice(std::string_view text, std::size_t& bytes) {
  TUTTI_TRY(read_bytes(text, bytes));
  return bytes >= 1 && bytes <= kMaxSliceBytes ? Status() : corrupt("1 to 1GiB are possible");
}

Status read_yes(std::string_view text, std::string_view yes, std::string_view no, bool& value) {
  value = text == yes;
  return value || text == no ? Status() : corrupt(fmt::format("{} or {}", yes, no));
}

Status read_transport(std::string_view text, std::string& transport) {
  if (std::find(std::begin(kTransports), std::end(kTransports), text) == std::end(kTransports))
    return corrupt(fmt::format("{}: a transport is memory, shm or tcp", shown(text)));
  transport = text;
  return {};
}

Status read_name(std::string_view text, std::string& name) {
  const bool fits = !text.empty() && text.size() <= kMaxNameBytes &&
                    std::all_of(text.begin(), text.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                    });
  if (!fits) return corrupt("not the name of an algorithm");
  name = text == kModel ? "" : text;
  return {};
}

Status read_collective(std::string_view text, Collective& collective) {
  const Result<Collective> read = parse_collective(text);
  if (!read.ok()) return corrupt(fmt::format("{}: not a collective", shown(text)));
  collective = *read;
  return {};
}

// ---- Lines ----

// Reads key=value words; `read` returns what is wrong with a value, or corrupt("") for an unknown
// key. No key stands twice.
template <typename Read>
Status read_pairs(std::span<const std::string_view> words, const Read& read) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      return corrupt(fmt::format("{}: expected key=value", shown(word)));
    const std::string_view key = word.substr(0, equals);
    for (std::size_t k = 0; k < i; ++k)
      if (words[k].starts_with(word.substr(0, equals + 1)))
        return corrupt(fmt::format("{}: the key stands twice", shown(word)));
    const Status status = read(key, word.substr(equals + 1));
    if (!status.ok()) return corrupt(fmt::format("{}: {}", shown(word), status.message()));
  }
  return {};
}

Status unknown_key(std::string_view known) {
  return corrupt(fmt::format("unknown key; there are {}", known));
}

// The four keys of a choice; nullopt for others.
std::optional<Status> read_choice(std::string_view key, std::string_view value,
                                  TunedChoice& choice) {
  if (key == "algorithm") return read_name(value, choice.algorithm);
  if (key == "lowering") return read_yes(value, "direct", "staged", choice.settings.direct);
  if (key == "channels") return read_count(value, kMaxChannels, choice.settings.channels);
  if (key == "slice") return read_slice(value, choice.settings.slice_bytes);
  return std::nullopt;
}

bool has_key(std::span<const std::string_view> words, std::string_view key) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return word.substr(0, word.find('=')) == key; });
}

Status require(std::span<const std::string_view> words,
               std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (!has_key(words, key)) return corrupt(fmt::format("{}= is missing", key));
  return {};
}

class Reader {
 public:
  Status read_line(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    const std::span<const std::string_view> rest(words.data() + 1, words.size() - 1);
    if (words[0] == "machine") return read_machine(line);
    if (words[0] == "transport") return read_transport_line(rest);
    if (words[0] == "place") return read_place(rest);
    if (words[0] == "use") return read_use(rest);
    if (words[0] == "time") return read_time(rest);
    return corrupt(
        fmt::format("{}: expected machine, transport, place, use or time", shown(words[0])));
  }

  Result<TuningTable> finish() && {
    if (table_.machine.empty()) return corrupt("the line 'machine ...' is missing");
    for (TuningPlace& place : table_.places) TUTTI_TRY(put_in_order(place));
    return std::move(table_);
  }

 private:
  Status read_machine(std::string_view line) {
    line.remove_prefix(line.find("machine") + 7);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
    const bool fits =
        !line.empty() && line.size() <= kMaxMachineBytes &&
        std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!fits) return corrupt(fmt::format("{}: not the name of a machine", shown(line)));
    if (!table_.machine.empty()) return corrupt("a second machine");
    table_.machine = line;
    return {};
  }

  Status read_transport_line(std::span<const std::string_view> words) {
    TransportFigures figures;
    if (words.empty()) return corrupt("which transport?");
    TUTTI_TRY(read_transport(words[0], figures.transport));
    if (table_.figures(figures.transport) != nullptr)
      return corrupt(fmt::format("{}: a second line of that transport", shown(words[0])));
    TUTTI_TRY(read_pairs(words.subspan(1), [&](std::string_view key, std::string_view value) {
      for (const FigureField& field : figure_fields())
        if (field.name == key)
          return read_number(value, field.lowest, field.highest, (figures.*field.value).emplace());
      return unknown_key(
          "latency_ns, bandwidth, send_ns, receive_ns, signal_ns, payload_ns, step_ns, switch_ns");
    }));
    table_.transports.push_back(std::move(figures));
    return {};
  }

  Status read_place(std::span<const std::string_view> words) {
    TuningPlace place;
    TuningKey& at = place.key;
    if (words.empty()) return corrupt("which transport?");
    TUTTI_TRY(read_transport(words[0], at.transport));
    const auto pairs = words.subspan(1);
    TUTTI_TRY(read_pairs(pairs, [&](std::string_view key, std::string_view value) {
      if (key == "ranks") return read_count(value, kMaxRanks, at.ranks);
      if (key == "cores") return read_count(value, kMaxRanks, at.cores);
      if (key == "direct") return read_yes(value, "yes", "no", at.direct);
      return unknown_key("ranks, cores, direct");
    }));
    TUTTI_TRY(require(pairs, {"ranks", "cores", "direct"}));
    if (table_.place(at) != nullptr) return corrupt("a second place of that kind");
    if (table_.places.size() >= kMaxPlaces)
      return corrupt(fmt::format("more than {} places", kMaxPlaces));
    table_.places.push_back(std::move(place));
    return {};
  }

  Status read_use(std::span<const std::string_view> words) {
    if (table_.places.empty()) return corrupt("no place stands above this line");
    if (words.empty()) return corrupt("which collective?");
    TunedUse use;
    TUTTI_TRY(read_collective(words[0], use.collective));
    const auto pairs = words.subspan(1);
    TUTTI_TRY(read_pairs(pairs, [&](std::string_view key, std::string_view value) {
      if (key == "from") return read_bytes(value, use.from_bytes);
      const std::optional<Status> read = read_choice(key, value, use.choice);
      return read ? *read : unknown_key("from, algorithm, lowering, channels, slice");
    }));
    TUTTI_TRY(require(pairs, {"from", "algorithm"}));
    if (use.choice.algorithm.empty()) {
      use.choice = TunedChoice();
      if (pairs.size() > 2) return corrupt("algorithm=model stands alone: the model chooses");
    } else {
      TUTTI_TRY(require(pairs, {"lowering"}));
    }
    table_.places.back().uses.push_back(std::move(use));
    return {};
  }

  Status read_time(std::span<const std::string_view> words) {
    if (table_.places.empty()) return corrupt("no place stands above this line");
    if (words.empty()) return corrupt("which collective?");
    TunedTime time;
    TUTTI_TRY(read_collective(words[0], time.collective));
    const auto pairs = words.subspan(1);
    TUTTI_TRY(read_pairs(pairs, [&](std::string_view key, std::string_view value) {
      if (key == "size") return read_bytes(value, time.bytes);
      if (key == "us") return read_number(value, 1e-6, kMaxUs, time.us);
      if (key == "plain_us") return read_number(value, 1e-6, kMaxUs, time.plain_us.emplace());
      const std::optional<Status> read = read_choice(key, value, time.choice);
      return read ? *read : unknown_key("size, algorithm, lowering, channels, slice, us, plain_us");
    }));
    TUTTI_TRY(require(pairs, {"size", "algorithm", "lowering", "us"}));
    if (time.choice.algorithm.empty()) return corrupt("a time is that of an algorithm");
    table_.places.back().times.push_back(std::move(time));
    return {};
  }

  static Status put_in_order(TuningPlace& place) {
    const auto order = [](const TunedUse& use) {
      return std::pair(static_cast<int>(use.collective), use.from_bytes);
    };
    std::sort(place.uses.begin(), place.uses.end(),
              [&](const TunedUse& x, const TunedUse& y) { return order(x) < order(y); });
    const auto twice = std::adjacent_find(
        place.uses.begin(), place.uses.end(),
        [&](const TunedUse& x, const TunedUse& y) { return order(x) == order(y); });
    if (twice == place.uses.end()) return {};
    return corrupt(fmt::format("two lines say what to use for {} from={} in one place",
                               to_string(twice->collective), twice->from_bytes));
  }

  TuningTable table_;
};

// ---- Writing ----

// Short where that loses nothing.
std::string bytes_text(std::size_t bytes) {
  constexpr std::size_t kKiB = 1024;
  if (bytes == 0 || bytes % kKiB != 0) return std::to_string(bytes);
  if (bytes % (kKiB * kKiB) != 0) return fmt::format("{}KiB", bytes / kKiB);
  return fmt::format("{}MiB", bytes / (kKiB * kKiB));
}

std::string choice_text(const TunedChoice& choice) {
  if (choice.algorithm.empty()) return fmt::format("algorithm={}", kModel);
  return fmt::format("algorithm={} lowering={} channels={} slice={}", choice.algorithm,
                     choice.settings.direct ? "direct" : "staged", choice.settings.channels,
                     bytes_text(choice.settings.slice_bytes));
}

void write_place(fmt::appender out, const TuningPlace& place) {
  fmt::format_to(out, "\nplace {} ranks={} cores={} direct={}\n", place.key.transport,
                 place.key.ranks, place.key.cores, place.key.direct ? "yes" : "no");
  for (const TunedUse& use : place.uses)
    fmt::format_to(out, "use {} from={} {}\n", to_string(use.collective),
                   bytes_text(use.from_bytes), choice_text(use.choice));
  for (const TunedTime& time : place.times) {
    fmt::format_to(out, "time {} size={} {} us={}", to_string(time.collective),
                   bytes_text(time.bytes), choice_text(time.choice), time.us);
    if (time.plain_us) fmt::format_to(out, " plain_us={}", *time.plain_us);
    fmt::format_to(out, "\n");
  }
}

}  // namespace

std::string to_text(const TuningTable& table) {
  fmt::memory_buffer memory;
  const fmt::appender out(memory);
  fmt::format_to(out, "{}\nmachine {}\n", kHeader, table.machine);
  for (const TransportFigures& figures : table.transports) {
    fmt::format_to(out, "transport {}", figures.transport);
    for (const FigureField& field : figure_fields())
      if (figures.*field.value) fmt::format_to(out, " {}={}", field.name, *(figures.*field.value));
    fmt::format_to(out, "\n");
  }
  for (const TuningPlace& place : table.places) write_place(out, place);
  return fmt::to_string(memory);
}

Result<TuningTable> tuning_from_text(std::string_view text) {
  if (text.size() > kMaxTextBytes) return corrupt("tuning table: larger than 4 MiB");
  Reader reader;
  bool begun = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(' ') == std::string_view::npos || line[0] == '#') continue;
    Status status;
    if (begun)
      status = reader.read_line(line);
    else if (line != kHeader)
      status = corrupt(fmt::format("{}: a tuning table begins with '{}'", shown(line), kHeader));
    begun = true;
    if (!status.ok()) return status.with_context(fmt::format("line {}", number));
  }
  if (!begun) return corrupt(fmt::format("empty: a tuning table begins with '{}'", kHeader));
  return std::move(reader).finish();
}

}  // namespace tutti::collectives

// text.cc: the line-oriented form of a topology, for files, diffs and people:
//
//   tutti-topology 1
//   vertex node n0 - kernel="Linux 6.1" memory_bytes="8589934592"
//   vertex numa n0/numa0 n0
//   link memory n0/core0 n0/numa0 latency_ns=50 bandwidth=12 half_duplex source=assumed
//   link nvlink n0/gpu0 n0/gpu1 latency_ns=350 bandwidth=100/50 source=given
//   end 5 2
//
// A vertex names its parent ("-" for none); ids are the order of lines. bandwidth=AB/BA where the
// directions differ. Empty lines and lines that begin with # are skipped. The last line counts
// vertices and links, so that a file cut short is noticed. Input is not trusted: sizes are
// bounded and every failure names its line.

#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/try.hpp"
#include "topology/names.hpp"
#include "topology/numbers.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

constexpr std::string_view kHeader = "tutti-topology 1";
constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

Status corrupt(std::string text) { return {StatusCode::corrupt_data, std::move(text)}; }

// Takes words off a line: plain ones up to a space, and the quoted text after key=.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  bool done() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    return rest_.empty();
  }

  // The next word, empty at the end.
  std::string_view next() {
    if (done()) return {};
    return take(rest_.find(' '));
  }

  // The word up to and without `stop`, empty when it does not come.
  std::string_view next_until(char stop) {
    const std::size_t at = done() ? std::string_view::npos : rest_.find(stop);
    if (at == std::string_view::npos) return {};
    const std::string_view word = take(at);
    rest_.remove_prefix(1);
    return word;
  }

  // Text in double quotes, where a backslash keeps the next character as it is.
  std::optional<std::string> next_quoted() {
    if (rest_.empty() || rest_[0] != '"') return std::nullopt;
    std::string text;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        return text;
      }
      if (rest_[i] == '\\' && ++i == rest_.size()) break;
      text += rest_[i];
    }
    return std::nullopt;
  }

 private:
  std::string_view take(std::size_t count) {
    const std::string_view word = rest_.substr(0, count);
    rest_.remove_prefix(word.size());
    return word;
  }

  std::string_view rest_;
};

class Reader {
 public:
  Status read_line(std::string_view line) {
    Words words(line);
    const std::string_view what = words.next();
    if (ended_) return corrupt("there is more after the end line");
    if (what == "vertex") return read_vertex(words);
    if (what == "link") return read_link(words);
    if (what == "end") return read_end(words);
    return corrupt(fmt::format("expected vertex, link or end, found '{}'", what.substr(0, 40)));
  }

  Result<Topology> finish() && {
    if (!ended_) return corrupt("the end line is missing: the text was cut short");
    Result<Topology> built = std::move(builder_).build();
    if (!built.ok()) return corrupt(built.status().message());
    return built;
  }

 private:
  Status read_vertex(Words& words) {
    Vertex vertex;
    const auto kind = topology::parse_vertex_kind(words.next());
    if (!kind) return corrupt("unknown kind of vertex");
    vertex.kind = *kind;
    vertex.name = words.next();
    const std::string_view parent = words.next();
    if (parent.empty()) return corrupt("a vertex has a kind, a name and a parent (or -)");
    if (parent != "-") {
      const auto known = ids_.find(parent);
      if (known == ids_.end()) return corrupt("the parent is not known at this line");
      vertex.parent = known->second;
    }
    TUTTI_TRY(read_info(words, vertex));
    std::string name = vertex.name;
    const VertexId id = builder_.add_vertex(std::move(vertex));
    if (!ids_.emplace(std::move(name), id).second) return corrupt("a second vertex of that name");
    return {};
  }

  static Status read_info(Words& words, Vertex& vertex) {
    while (!words.done()) {
      const std::string_view key = words.next_until('=');
      std::optional<std::string> value = words.next_quoted();
      if (key.empty() || !value) return corrupt("expected key=\"text\"");
      if (!vertex.info.emplace(key, std::move(*value)).second) return corrupt("a key stands twice");
    }
    return {};
  }

  Status read_link(Words& words) {
    Link link;
    const auto kind = topology::parse_link_kind(words.next());
    if (!kind) return corrupt("unknown kind of link");
    link.kind = *kind;
    for (VertexId* end : {&link.a, &link.b}) {
      const auto known = ids_.find(words.next());
      if (known == ids_.end()) return corrupt("an end of the link is not known at this line");
      *end = known->second;
    }
    while (!words.done()) TUTTI_TRY(read_link_word(words.next(), link));
    builder_.add_link(link);
    return {};
  }

  static Status read_link_word(std::string_view word, Link& link) {
    if (word == "half_duplex") {
      link.half_duplex = true;
      return {};
    }
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (key == "source") return assign(topology::parse_link_source(value), link.source);
    if (key == "latency_ns") return assign(topology::parse_number<double>(value), link.latency_ns);
    if (key == "bandwidth") {
      const std::size_t slash = value.find('/');
      const bool one = slash == std::string_view::npos;
      TUTTI_TRY(assign(topology::parse_number<double>(value.substr(0, slash)), link.bandwidth_ab));
      return assign(topology::parse_number<double>(one ? value : value.substr(slash + 1)),
                    link.bandwidth_ba);
    }
    return corrupt("a link has latency_ns=, bandwidth=, source= and half_duplex");
  }

  template <typename Value>
  static Status assign(std::optional<Value> value, Value& target) {
    if (!value) return corrupt("a value of the link cannot be read");
    target = *value;
    return {};
  }

  Status read_end(Words& words) {
    const auto vertices = topology::parse_number<std::size_t>(words.next());
    const auto links = topology::parse_number<std::size_t>(words.next());
    if (vertices != builder_.vertex_count() || links != builder_.link_count())
      return corrupt("the end line counts other numbers of vertices and links");
    if (!words.done()) return corrupt("there is more after the counts");
    ended_ = true;
    return {};
  }

  TopologyBuilder builder_;
  std::map<std::string, VertexId, std::less<>> ids_;
  bool ended_ = false;
};

}  // namespace

std::string to_text(const Topology& topology) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "{}\n", kHeader);
  const auto name_of = [&](VertexId id) -> std::string_view {
    return id == VertexId::none ? "-" : std::string_view(topology.vertex(id).name);
  };
  for (const Vertex& vertex : topology.vertices()) {
    fmt::format_to(to, "vertex {} {} {}", to_string(vertex.kind), vertex.name,
                   name_of(vertex.parent));
    for (const auto& [key, value] : vertex.info) fmt::format_to(to, " {}={}", key, quoted(value));
    fmt::format_to(to, "\n");
  }
  for (const Link& link : topology.links()) {
    fmt::format_to(to, "link {} {} {} latency_ns={} bandwidth={}", to_string(link.kind),
                   name_of(link.a), name_of(link.b), link.latency_ns, link.bandwidth_ab);
    if (link.bandwidth_ba != link.bandwidth_ab) fmt::format_to(to, "/{}", link.bandwidth_ba);
    fmt::format_to(to, "{} source={}\n", link.half_duplex ? " half_duplex" : "",
                   to_string(link.source));
  }
  fmt::format_to(to, "end {} {}\n", topology.vertices().size(), topology.links().size());
  return fmt::to_string(out);
}

Result<Topology> topology_from_text(std::string_view text) {
  if (text.size() > kMaxTextBytes) return corrupt("topology text: larger than 256 MiB");
  Reader reader;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    Status status;
    if (number == 1)
      status =
          line == kHeader ? Status() : corrupt(fmt::format("the first line must be '{}'", kHeader));
    else if (!Words(line).done() && line[0] != '#')
      status = reader.read_line(line);
    if (!status.ok()) return status.with_context(fmt::format("topology text, line {}", number));
  }
  Result<Topology> read = std::move(reader).finish();
  if (!read.ok()) return read.status().with_context("topology text");
  return read;
}

}  // namespace tutti

// What the ranks of a job print: any bytes, in any pieces, mixed between ranks.
//
// Beyond not crashing: every byte comes out, in order, each line behind its rank's prefix, and
// lines of two ranks never mix.
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "cli/launcher/output.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::cli::launcher;

// What a rank's bytes should look like, line by line.
std::string prefixed(char rank, std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    text += std::string({'[', rank, ']'}) + std::string(line) + '\n';
    bytes.remove_prefix(std::min(line.size() + 1, bytes.size()));
  }
  return text;
}

struct Pipe {
  Pipe() { TUTTI_ASSERT(::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC) == 0, "a pipe"); }
  std::array<int, 2> ends{};
};

std::string everything_from(Sink& sink, const Pipe& pipe) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (!sink.empty()) {
    sink.write_some();
    const ssize_t got = ::read(pipe.ends[0], buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

std::size_t input_bytes_max() { return 512; }

void run(std::string_view input) {
  static const Pipe pipe;
  const AllocationLimit limit(32 * input.size() + 16 * 1024);
  Sink sink(pipe.ends[1]);
  std::array<LineStream, 2> streams = {LineStream("[0]", sink), LineStream("[1]", sink)};
  std::array<std::string, 2> sent;
  for (Decisions decisions(input); !decisions.done();) {
    const std::size_t rank = decisions.number<std::uint8_t>() % 2;
    const std::string_view bytes = decisions.text();
    // Brackets are how the prefixes are found again.
    std::string plain(bytes);
    for (char& c : plain)
      if (c == '[') c = '(';
    streams[rank].feed(plain);
    sent[rank] += plain;
  }
  for (LineStream& stream : streams) stream.finish();
  std::array<std::string, 2> came;
  std::string all = everything_from(sink, pipe);
  if (!all.empty() && all.back() != '\n') all += '\n';
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n') + 1);
    TUTTI_ASSERT(line.size() > 3 && line[0] == '[' && line.find('[', 1) == std::string_view::npos,
                 "a line is of one rank");
    came[line[1] == '1' ? 1 : 0] += line;
    rest.remove_prefix(line.size());
  }
  TUTTI_ASSERT(came[0] == prefixed('0', sent[0]) && came[1] == prefixed('1', sent[1]),
               "every byte comes out in order");
}

std::vector<std::string> seeds() {
  return {Script().byte(0).text("hello\nwor").byte(1).text("other\n").byte(0).text("ld\n"),
          Script().byte(1).text("no end").byte(0).text("\n\n")};
}

}  // namespace tutti::fuzz

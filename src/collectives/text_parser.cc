// Reads the text form of schedules. The text may come from anywhere, so every number, list and
// product that decides how much work follows has a bound, and nothing is trusted.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "base/try.hpp"
#include "collectives/text.hpp"

namespace tutti::collectives {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;
constexpr int kNumberMax = 1 << 24;
constexpr int kRanksMax = 1 << 20;
constexpr int kOperandsMax = 1 << 16;
constexpr std::size_t kNameMax = 64;
// Steps of one program with loops unrolled.
constexpr std::int64_t kStepsMax = 1 << 22;
constexpr std::int64_t kIndexMax = 1 << 30;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The words and signs of one line, from left to right.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text.substr(0, text.find('#'))), number_(number) {
    skip_blanks();
  }

  int number() const { return number_; }
  bool done() const { return rest_.empty(); }

  Status error(std::string_view wanted) const {
    constexpr std::size_t kShown = 20;
    return Status(StatusCode::corrupt_data,
                  fmt::format("line {}: expected {}, found {}", number_, wanted,
                              rest_.empty() ? "the end of the line"
                                            : fmt::format("'{}'", printable(kShown))));
  }

  bool take(std::string_view sign) {
    if (rest_.substr(0, sign.size()) != sign) return false;
    rest_.remove_prefix(sign.size());
    skip_blanks();
    return true;
  }

  // A minus sign, not the beginning of an arrow.
  bool take_minus() { return rest_.substr(0, 2) != "->" && take("-"); }

  // A whole word: what follows is no part of a name.
  bool take_word(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    if (rest_.size() > word.size() && is_name_character(rest_[word.size()])) return false;
    return take(word);
  }

  bool at_number() const {
    const std::size_t digit = !rest_.empty() && (rest_[0] == '-' || rest_[0] == '+') ? 1 : 0;
    return rest_.size() > digit && std::isdigit(static_cast<unsigned char>(rest_[digit])) != 0;
  }

  // -bound .. bound, with a sign if there is one.
  Result<int> number(int bound) {
    if (!at_number()) return error("a number");
    const bool plus = rest_[0] == '+';
    int value = 0;
    const char* begin = rest_.data() + (plus ? 1 : 0);
    const auto [end, failed] = std::from_chars(begin, rest_.data() + rest_.size(), value);
    if (failed != std::errc() || value > bound || value < -bound)
      return error(fmt::format("a number up to {}", bound));
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    skip_blanks();
    return value;
  }

  Result<std::string> name() {
    std::size_t length = 0;
    while (length < rest_.size() && (is_name_character(rest_[length]) || rest_[length] == '-'))
      ++length;
    if (length == 0 || length > kNameMax)
      return error(fmt::format("a name of up to {} letters, digits, '_' and '-'", kNameMax));
    std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    skip_blanks();
    return name;
  }

  Status end() const { return done() ? Status() : error("the end of the line"); }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }

  std::string printable(std::size_t length) const {
    std::string text(rest_.substr(0, length));
    for (char& c : text)
      if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
    return text;
  }

  std::string_view rest_;
  int number_;
};

// ---- Indices ----

struct Sum {
  int rank_factor = 0;
  int loop_factor = 0;
  int constant = 0;
};

// One term of a sum: [number '*'] (r | i), or a number. `negative`: a minus stood before.
Status parse_term(Line& line, bool negative, Sum& sum) {
  int factor = negative ? -1 : 1;
  bool has_factor = false;
  if (line.at_number()) {
    const Result<int> number = line.number(kNumberMax);
    TUTTI_TRY(number);
    factor *= *number;
    has_factor = true;
    if (!line.take("*")) {
      sum.constant += factor;
      return {};
    }
  }
  int* target = line.take_word("r")   ? &sum.rank_factor
                : line.take_word("i") ? &sum.loop_factor
                                      : nullptr;
  if (target == nullptr) return line.error(has_factor ? "r or i" : "a number, r or i");
  if (*target != 0) return line.error("each of r and i at most once before");
  *target = factor;
  return {};
}

// Terms until neither + nor - follows. At most r, i and two numbers.
Status parse_sum(Line& line, Sum& sum) {
  constexpr int kTermsMax = 4;
  bool negative = line.take_minus();
  for (int terms = 1; terms <= kTermsMax; ++terms) {
    TUTTI_TRY(parse_term(line, negative, sum));
    if (std::abs(sum.constant) > kNumberMax) return line.error("a smaller sum before");
    if (line.take("+"))
      negative = false;
    else if (line.take_minus())
      negative = true;
    else
      return {};
  }
  return line.error("a shorter sum");
}

// What comes before a parenthesis: nothing, "base+", "stride*" or "base+stride*".
bool take_index_head(Line& line, int& base, int& stride) {
  auto take_number = [&](int& value) {
    const Result<int> number = line.number(kNumberMax);
    if (number.ok()) value = *number;
    return number.ok();
  };
  int first = 0;
  if (line.take("(")) return true;
  if (!take_number(first)) return false;
  if (line.take("*")) {
    stride = first;
    return line.take("(");
  }
  base = first;
  if (!line.take("+")) return false;
  if (line.take("(")) return true;
  return take_number(stride) && line.take("*") && line.take("(");
}

Result<AffineIndex> parse_index(Line& line) {
  Line head = line;
  int base = 0;
  int stride = 1;
  Sum sum;
  if (!take_index_head(head, base, stride)) {
    TUTTI_TRY(parse_sum(line, sum));
    if (line.take("%")) return line.error("parentheses around what '%' is applied to, before");
    return AffineIndex::raw(0, 1, sum.rank_factor, sum.loop_factor, sum.constant, 0);
  }
  line = head;
  TUTTI_TRY(parse_sum(line, sum));
  if (!line.take(")")) return line.error("')'");
  int modulus = 0;
  if (line.take("%")) {
    const Result<int> number = line.number(kNumberMax);
    TUTTI_TRY(number);
    if (*number < 1) return line.error("a modulus of at least 1 before");
    modulus = *number;
  }
  return AffineIndex::raw(base, stride, sum.rank_factor, sum.loop_factor, sum.constant, modulus);
}

// Whether the index stays far from overflow for all ranks and loop indices.
bool is_bounded(const AffineIndex& index, int ranks, int times) {
  auto size = [](int value) { return std::abs(static_cast<std::int64_t>(value)); };
  const std::int64_t sum = size(index.rank_factor()) * ranks + size(index.loop_factor()) * times +
                           size(index.constant());
  const std::int64_t inner = index.modulus() != 0 ? index.modulus() : sum;
  return sum <= kIndexMax && size(index.stride()) * inner + size(index.base()) <= kIndexMax;
}

// ---- Steps ----

Status parse_count(Line& line, int& count) {
  if (!line.take(":")) return {};
  const Result<int> number = line.number(kNumberMax);
  TUTTI_TRY(number);
  if (*number < 2) return line.error("a count of at least 2 before");
  count = *number;
  return {};
}

Status parse_memory(Line& line, Operand& operand) {
  if (!line.take("[")) return line.error("'['");
  const Result<AffineIndex> index = parse_index(line);
  TUTTI_TRY(index);
  operand.index = *index;
  TUTTI_TRY(parse_count(line, operand.count));
  return line.take("]") ? Status() : line.error("']'");
}

Result<Operand> parse_operand(Line& line, std::string_view preposition) {
  Operand operand;
  for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
    if (line.take_word(to_string(buffer))) {
      operand.buffer = buffer;
      TUTTI_TRY(parse_memory(line, operand));
      return operand;
    }
  operand.kind = Operand::Kind::message;
  if (line.take_word(fmt::format("{}_queue", preposition)))
    operand.travel = Travel::queued;
  else if (line.take_word(fmt::format("{}_push", preposition)))
    operand.travel = Travel::pushed;
  else if (!line.take_word(preposition))
    return line.error(fmt::format("input, output, scratch or {}", preposition));
  const Result<AffineIndex> index = parse_index(line);
  TUTTI_TRY(index);
  operand.index = *index;
  TUTTI_TRY(parse_count(line, operand.count));
  return operand;
}

Status parse_operands(Line& line, std::string_view preposition, std::vector<Operand>& operands) {
  if (line.take_word("nothing")) return {};
  do {
    if (operands.size() >= kOperandsMax) return line.error("fewer operands");
    Result<Operand> operand = parse_operand(line, preposition);
    TUTTI_TRY(operand);
    operands.push_back(*std::move(operand));
  } while (line.take(","));
  return {};
}

Result<Step> parse_step(Line& line) {
  Step step;
  if (line.take_word("copy")) {
    step.finish = line.take_word("finish");
  } else if (line.take_word("finish")) {
    step.kind = StepKind::reduce;
    step.finish = true;
  } else if (line.take_word("reduce")) {
    step.kind = StepKind::reduce;
  } else {
    return line.error("copy, reduce, finish, repeat, end or program");
  }
  TUTTI_TRY(parse_operands(line, "from", step.sources));
  if (!line.take("->")) return line.error("'->'");
  TUTTI_TRY(parse_operands(line, "to", step.destinations));
  TUTTI_TRY(line.end());
  return step;
}

// ---- The whole ----

class Parser {
 public:
  Result<Schedule> parse(std::string_view text) {
    if (text.size() > kTextBytesMax)
      return Status(
          StatusCode::corrupt_data,
          fmt::format("a schedule of {} bytes; at most {} are read", text.size(), kTextBytesMax));
    int number = 0;
    while (!text.empty()) {
      const std::size_t length = std::min(text.find('\n'), text.size());
      Line line(text.substr(0, length), ++number);
      text.remove_prefix(std::min(length + 1, text.size()));
      if (!line.done()) TUTTI_TRY(parse_line(line));
    }
    return finish(Line("", number));
  }

 private:
  Status parse_line(Line& line) {
    if (!has_header_) {
      if (!line.take("tutti schedule 1")) return line.error("'tutti schedule 1'");
      has_header_ = true;
      return line.end();
    }
    if (line.take_word("program")) return begin_program(line);
    return schedule_.programs.empty() ? parse_shape(line) : parse_part(line);
  }

  Status parse_shape(Line& line) {
    ScheduleShape& shape = schedule_.shape;
    if (line.take_word("algorithm")) {
      Result<std::string> name = line.name();
      TUTTI_TRY(name);
      schedule_.algorithm = *std::move(name);
      return line.end();
    }
    if (line.take_word("collective")) {
      const Result<std::string> name = line.name();
      TUTTI_TRY(name);
      const Result<Collective> collective = parse_collective(*name);
      if (!collective.ok())
        return Status(StatusCode::corrupt_data,
                      fmt::format("line {}: {}", line.number(), collective.status().message()));
      shape.collective = *collective;
      return line.end();
    }
    int* field = line.take_word("ranks")                ? &shape.ranks
                 : line.take_word("root")               ? &shape.root
                 : line.take_word("chunks")             ? &shape.chunks
                 : line.take_word("scratch_blocks")     ? &shape.scratch_blocks
                 : line.take_word("message_chunks_max") ? &shape.message_chunks_max
                                                        : nullptr;
    if (field == nullptr)
      return line.error(
          "algorithm, collective, ranks, root, chunks, scratch_blocks, message_chunks_max or "
          "program");
    const Result<int> value = line.number(field == &shape.ranks ? kRanksMax : kNumberMax);
    TUTTI_TRY(value);
    if (*value < (field == &shape.ranks || field == &shape.chunks ? 1 : 0))
      return line.error("a larger number before");
    *field = *value;
    return line.end();
  }

  Status begin_program(Line& line) {
    TUTTI_TRY(end_program(line));
    if (!line.take_word("for")) return line.error("'for'");
    if (schedule_.programs.empty()) schedule_.program_of_rank.assign(at(schedule_.shape.ranks), -1);
    const int program = static_cast<int>(schedule_.programs.size());
    schedule_.programs.emplace_back();
    steps_ = 0;
    if (line.take_word("nobody")) return line.end();
    do {
      TUTTI_TRY(parse_ranks(line, program));
    } while (!line.done());
    return {};
  }

  // "3" or "3-5".
  Status parse_ranks(Line& line, int program) {
    const Result<int> first = line.number(schedule_.shape.ranks - 1);
    TUTTI_TRY(first);
    int last = *first;
    if (line.take("-")) {
      const Result<int> number = line.number(schedule_.shape.ranks - 1);
      TUTTI_TRY(number);
      last = *number;
    }
    if (*first < 0 || last < *first) return line.error("ranks in ascending order before");
    for (int rank = *first; rank <= last; ++rank) {
      int& place = schedule_.program_of_rank[at(rank)];
      if (place >= 0) return line.error(fmt::format("rank {} in one program only", rank));
      place = program;
    }
    return {};
  }

  Status end_program(const Line& line) const {
    return in_loop_ ? line.error("'end' of the loop first") : Status();
  }

  Status parse_part(Line& line) {
    std::vector<Repeat>& parts = schedule_.programs.back().parts;
    if (line.take_word("repeat")) {
      if (in_loop_) return line.error("loops that are not nested");
      const Result<int> times = line.number(kNumberMax);
      TUTTI_TRY(times);
      if (*times < 0) return line.error("a number of times before");
      parts.push_back(Repeat{*times, {}});
      in_loop_ = true;
      straight_ = false;
      return line.end();
    }
    if (line.take_word("end")) {
      if (!in_loop_) return line.error("a loop that it ends");
      in_loop_ = false;
      return line.end();
    }
    return add_step(line, parts);
  }

  Status add_step(Line& line, std::vector<Repeat>& parts) {
    Result<Step> step = parse_step(line);
    TUTTI_TRY(step);
    if (!in_loop_ && (!straight_ || parts.empty())) parts.push_back(Repeat{1, {}});
    if (!in_loop_) straight_ = true;
    const int times = parts.back().times;
    steps_ += times;
    if (steps_ > kStepsMax) return line.error(fmt::format("at most {} steps before", kStepsMax));
    for (const auto* operands : {&step->sources, &step->destinations})
      for (const Operand& operand : *operands)
        if (!is_bounded(operand.index, schedule_.shape.ranks, times))
          return line.error(fmt::format("indices up to {} before", kIndexMax));
    parts.back().body.push_back(*std::move(step));
    return {};
  }

  Result<Schedule> finish(const Line& line) {
    if (!has_header_) return line.error("'tutti schedule 1'");
    TUTTI_TRY(end_program(line));
    if (schedule_.programs.empty()) return line.error("a program");
    for (std::size_t rank = 0; rank < schedule_.program_of_rank.size(); ++rank)
      if (schedule_.program_of_rank[rank] < 0)
        return line.error(fmt::format("a program for rank {}", rank));
    return std::move(schedule_);
  }

  Schedule schedule_;
  bool has_header_ = false;
  bool in_loop_ = false;
  bool straight_ = false;  // the last part is straight code that goes on
  std::int64_t steps_ = 0;
};

}  // namespace

Result<Schedule> parse_schedule(std::string_view text) { return Parser().parse(text); }

}  // namespace tutti::collectives

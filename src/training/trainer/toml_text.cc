// toml_text.cc: see toml_text.hpp.
#include "training/trainer/toml_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::training {
namespace {

constexpr std::size_t kDotsMax = 1000;

// Where the string that begins at `begin` has ended.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const std::string triple(3, quote);
  const bool lines = text.substr(begin, 3) == triple;  // one that may go over several
  std::size_t at = begin + (lines ? 3 : 1);
  while (at < text.size()) {
    if (quote == '"' && text[at] == '\\') {
      at += 2;  // what follows is no end
    } else if (lines && text.substr(at, 3) == triple) {
      at += 3;  // up to two more quotes belong to the string
      for (int extra = 0; extra < 2 && at < text.size() && text[at] == quote; ++extra) ++at;
      return at;
    } else if (!lines && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else {
      ++at;
    }
  }
  return text.size();
}

bool begins_key(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '"' || c == '\'';
}

// Whether toml++ may see what follows a section's bracket. It finds other errors itself.
bool header_bears_parsing(std::string_view after_bracket) {
  const auto skip_spaces = [&] {
    after_bracket.remove_prefix(
        std::min(after_bracket.find_first_not_of(" \t"), after_bracket.size()));
  };
  skip_spaces();
  if (after_bracket.starts_with('[')) {
    after_bracket.remove_prefix(1);
    skip_spaces();
  }
  if (after_bracket.empty()) return true;
  return begins_key(after_bracket.front()) || after_bracket.front() == ']';
}

// Looks through a text, as far as it is well-formed, for what the parser must not be given: the
// parser itself stops where it is not.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {
    if (text.starts_with("\xef\xbb\xbf")) at_ = 3;  // a byte order mark
  }

  // What is wrong, and at() where; empty when nothing is.
  std::string_view run() {
    while (at_ < text_.size()) {
      if (const std::string_view why = look(text_[at_]); !why.empty()) return why;
      advance();
    }
    return {};
  }
  std::size_t at() const { return at_; }

 private:
  // At a byte that is in no string and no comment.
  std::string_view look(char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x7f || (byte < 0x20 && c != '\t' && c != '\n' && c != '\r'))
      return "a character that TOML has in texts and comments only";
    if (c == '[' && line_begins_ && open_.empty() && !header_bears_parsing(text_.substr(at_ + 1)))
      return "expected the name of a section after [";
    if (c == '.' && ++dots_ > kDotsMax) return "more than 1000 dots outside of texts";
    line_begins_ = c == '\n' || (line_begins_ && (c == ' ' || c == '\t'));
    if (c == '[' || c == '{') open_ += c;
    if (c != ']' && c != '}') return {};
    if (open_.empty() || open_.back() != (c == ']' ? '[' : '{'))
      return "a bracket that ends nothing";
    open_.pop_back();
    return {};
  }

  void advance() {
    const char c = text_[at_];
    if (c == '"' || c == '\'')
      at_ = end_of_string(text_, at_);
    else if (c == '#')
      at_ = std::min(text_.find('\n', at_), text_.size());
    else
      ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t dots_ = 0;
  std::string open_;  // brackets
  bool line_begins_ = true;
};

std::string place_of(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') + 1;  // 0 when there is none
  return fmt::format(":{}:{}", line, at - line_begin + 1);
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, std::string_view name,
                               std::size_t bytes_max) {
  const auto refused = [&](const std::string& place, std::string_view why) {
    return Status(StatusCode::invalid_argument, fmt::format("{}{}: {}", name, place, why));
  };
  if (text.size() > bytes_max) return refused("", fmt::format("larger than {} bytes", bytes_max));
  Scan scan(text);
  if (const auto why = scan.run(); !why.empty()) return refused(place_of(text, scan.at()), why);
  try {
    return toml::parse(text, std::string(name));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return refused(fmt::format(":{}:{}", at.line, at.column), clipped(error.description()));
  }
}

std::string found(const toml::node& node) {
  if (const auto* text = node.as_string()) return "the text " + clipped_quote(text->get());
  if (const auto* integer = node.as_integer()) return fmt::format("the integer {}", integer->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("the number {}", real->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a section";
  return "a date or time";
}

std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      made += {'\\', c};
    else if (byte < 0x20 || byte == 0x7f)
      made += fmt::format("\\u{:04X}", byte);
    else
      made += c;
  }
  return made + '"';
}

// As much of a text from outside as an error repeats, in one line.
std::string clipped(std::string_view text) {
  constexpr std::size_t kBytes = 80;
  std::string made(text.substr(0, kBytes));
  for (char& c : made)
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  return text.size() <= kBytes ? made : made + "...";
}

std::string clipped_quote(std::string_view text) { return quoted(clipped(text)); }

}  // namespace tutti::training

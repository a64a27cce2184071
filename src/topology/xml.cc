// xml.cc: see xml.hpp.
#include "topology/xml.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/try.hpp"

namespace tutti::topology {
namespace {

// More than any machine has.
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxElements = 100'000;

constexpr std::string_view kSpace = " \t\r\n";

struct Entity {
  std::string_view name;
  char meaning;
};
constexpr std::array<Entity, 5> kEntities = {
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}};

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == ':' || c == '.';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<XmlElement> document() {
    TUTTI_TRY(skip_asides());
    auto root = element(0);
    TUTTI_TRY(root);
    TUTTI_TRY(skip_asides());
    if (!rest().empty()) return corrupt("there is something behind the outermost element");
    return root;
  }

  // What stands between elements and says nothing of them: space, comments, declarations.
  Status skip_asides() {
    for (;;) {
      at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
      if (rest().starts_with("<!--")) {
        TUTTI_TRY(skip_to("-->", "a comment does not end"));
      } else if (rest().starts_with("<?")) {
        TUTTI_TRY(skip_to("?>", "a declaration does not end"));
      } else if (rest().starts_with("<!DOCTYPE")) {
        TUTTI_TRY(skip_to(">", "a declaration does not end"));
      } else {
        return Status();
      }
    }
  }

  std::string_view name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_letter(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool take(std::string_view expected) {
    if (!rest().starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }

  // Counted once, from where it was asked for last.
  int line() {
    const auto since = text_.substr(counted_, at_ - counted_);
    line_ += static_cast<int>(std::count(since.begin(), since.end(), '\n'));
    counted_ = at_;
    return line_;
  }

  Status corrupt(const std::string& what) {
    return Status(StatusCode::corrupt_data, fmt::format("XML line {}: {}", line(), what));
  }

  Status skip_to(std::string_view end, const char* otherwise) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return corrupt(otherwise);
    at_ = found + end.size();
    return Status();
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  Result<XmlElement> element(int depth) {
    XmlElement made;
    made.line = line();
    if (!take("<")) return corrupt("an element is expected");
    made.name = name();
    if (made.name.empty()) return corrupt("an element has no name");
    if (depth >= kMaxDepth) return corrupt("elements lie too deep");
    if (++elements_ > kMaxElements) return corrupt("there are too many elements");
    for (skip_space(); !rest().starts_with(">") && !rest().starts_with("/>"); skip_space())
      TUTTI_TRY(read_attribute(made));
    if (take("/>")) return made;
    ++at_;
    TUTTI_TRY(read_children(made, depth));
    return made;
  }

  Status read_attribute(XmlElement& element) {
    const std::string_view key = name();
    if (key.empty()) return corrupt(fmt::format("<{}> does not end", element.name));
    skip_space();
    if (!take("=")) return corrupt(fmt::format("attribute {} has no value", key));
    skip_space();
    const char quote = rest().empty() ? '\0' : rest().front();
    if (quote != '"' && quote != '\'')
      return corrupt(fmt::format("the value of {} is not in quotes", key));
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos)
      return corrupt(fmt::format("the value of {} does not end", key));
    element.attributes.emplace_back(key, decoded(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
    return Status();
  }

  // An entity that is not known stays as it is.
  static std::string decoded(std::string_view value) {
    std::string result;
    while (!value.empty()) {
      const auto known =
          std::find_if(kEntities.begin(), kEntities.end(),
                       [&](const Entity& entity) { return value.starts_with(entity.name); });
      const bool found = known != kEntities.end();
      result += found ? known->meaning : value.front();
      value.remove_prefix(found ? known->name.size() : 1);
    }
    return result;
  }

  Status read_children(XmlElement& parent, int depth) {
    for (;;) {
      TUTTI_TRY(skip_asides());
      if (take("</")) break;
      if (!rest().starts_with("<")) return corrupt(fmt::format("<{}> does not end", parent.name));
      auto child = element(depth + 1);
      TUTTI_TRY(child);
      parent.children.push_back(*std::move(child));
    }
    const std::string_view ended = name();
    skip_space();
    if (ended != parent.name || !take(">"))
      return corrupt(fmt::format("</{}> is expected, for line {}", parent.name, parent.line));
    return Status();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;  // lines up to here
  int line_ = 1;
  std::size_t elements_ = 0;
};

}  // namespace

std::string_view XmlElement::attribute(std::string_view wanted) const {
  for (const auto& [key, value] : attributes)
    if (key == wanted) return value;
  return {};
}

Result<XmlElement> parse_xml(std::string_view text) { return Reader(text).document(); }

std::string_view xml_root_name(std::string_view text) {
  Reader reader(text);
  if (!reader.skip_asides().ok() || !reader.take("<")) return {};
  return reader.name();
}

}  // namespace tutti::topology

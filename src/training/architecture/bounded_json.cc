// bounded_json.cc: see bounded_json.hpp.
#include "training/architecture/bounded_json.hpp"

#include <fmt/core.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::training {
namespace {

using Json = nlohmann::json;

// Looks on while the parser works; what comes after the first violation is thrown away unread.
class Watcher {
 public:
  explicit Watcher(int depth_max) : depth_max_(depth_max) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (!violation_.empty()) return false;
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= depth_max_) violation_ = fmt::format("nested deeper than {}", depth_max_);
    }
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) note_key(value.get_ref<const std::string&>());
    return violation_.empty();
  }

  const std::string& violation() const { return violation_; }

 private:
  void note_key(const std::string& key) {
    if (!keys_.back().insert(key).second)
      violation_ = fmt::format("the key \"{}\" is there twice", shown(key));
  }

  int depth_max_;
  std::string violation_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::string made(text.substr(0, kLongest));
  for (char& c : made)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text.size() > kLongest ? made + "..." : made;
}

Result<Json> parse_json_object(std::string_view text, std::string_view what,
                               const JsonBounds& bounds) {
  const auto corrupt = [&](const std::string& why) {
    return Status(StatusCode::corrupt_data, fmt::format("{}: {}", what, why));
  };
  if (text.size() > bounds.bytes)
    return corrupt(fmt::format("{} bytes, more than {}", text.size(), bounds.bytes));
  Watcher watcher(bounds.depth);
  const auto look = [&](int depth, Json::parse_event_t event, const Json& value) {
    return watcher(depth, event, value);
  };
  try {
    Json whole = Json::parse(text, look);
    if (!watcher.violation().empty()) return corrupt(watcher.violation());
    if (!whole.is_object()) return corrupt("not a JSON object");
    return whole;
  } catch (const Json::parse_error& error) {
    return corrupt(fmt::format("not JSON at byte {}", error.byte));
  } catch (const Json::exception&) {
    return corrupt("a number that no computer has");
  }
}

}  // namespace tutti::training

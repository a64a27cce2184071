// bounded_json.hpp: JSON from files that anybody may have written: so long, so deep and no further,
// and no key twice (readers differ in which of the two they believe).
//
// Knows nothing of what the keys mean.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::training {

struct JsonBounds {
  std::size_t bytes = std::size_t{1} << 20;
  int depth = 16;  // of objects and arrays within each other
};

// Errors  corrupt_data, the text beginning with `what`: not a JSON object, or beyond the bounds.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view what,
                                         const JsonBounds& bounds = {});

// What of a text from outside goes into an error's text: its beginning, printable.
std::string shown(std::string_view text);

}  // namespace tutti::training

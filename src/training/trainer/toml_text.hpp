// toml_text.hpp: TOML from outside, parsed within bounds; and the texts of errors about it.
//
// Stands between files and toml++ 3.3, which takes deep nesting apart recursively, and which
// assumes of some malformed texts ("[!]", "[ }") that they cannot be. Knows no key.
#pragma once

#include <toml++/toml.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::training {

// Errors  invalid_argument, "name:line:column: ..."; malformed, larger than
//         `bytes_max`, or with more than 1000 dots outside of strings and comments, each of which
//         may be a level of nesting.
Result<toml::table> parse_toml(std::string_view text, std::string_view name, std::size_t bytes_max);

// What a value is, for people: "the text \"x\"", "the integer 3", "a list".
std::string found(const toml::node& node);

// A string as TOML prints it, in quotes.
std::string quoted(std::string_view text);

// As much of a text from outside as an error repeats, in one line; with quotes, the other.
std::string clipped(std::string_view text);
std::string clipped_quote(std::string_view text);

}  // namespace tutti::training

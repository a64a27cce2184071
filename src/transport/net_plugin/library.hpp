// library.hpp: shared libraries by the names that NCCL's users give them.
//
// Knows dlopen; does not know what is in them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::net_plugin {

// A library that is open for as long as the process lives, or why there is none: a plugin may have
// threads, and functions that run when the process ends.
struct Library {
  void* handle = nullptr;
  std::string error;
};

Library open_library(const std::string& file);

// A name as given, and then as people abbreviate it: <prefix><name>.so.
Library find_library(const std::string& name, std::string_view prefix);

// What stands at a data symbol; null: nothing.
void* find_symbol(void* library, const char* name);

// The names of a list with commas between.
std::vector<std::string> names_of(std::string_view list);

}  // namespace tutti::transport::net_plugin

// library.cc: see library.hpp.
#include "transport/net_plugin/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace tutti::transport::net_plugin {

Library open_library(const std::string& file) {
  // One at a time: what the constructors of a library write is then ordered before what another
  // thread, which finds it open, reads in it; the loader's own lock does not show.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Library library{::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), {}};
  if (library.handle != nullptr) return library;
  const char* why = ::dlerror();
  library.error = why == nullptr ? "no reason given" : why;
  return library;
}

Library find_library(const std::string& name, std::string_view prefix) {
  Library as_given = open_library(name);
  if (as_given.handle != nullptr) return as_given;
  Library derived = open_library(fmt::format("{}{}.so", prefix, name));
  if (derived.handle == nullptr)
    derived.error = fmt::format("cannot be opened ({}; {})", as_given.error, derived.error);
  return derived;
}

void* find_symbol(void* library, const char* name) { return ::dlsym(library, name); }

std::vector<std::string> names_of(std::string_view list) {
  constexpr std::size_t kNamesMax = 16;
  std::vector<std::string> names;
  while (!list.empty() && names.size() < kNamesMax) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) names.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

}  // namespace tutti::transport::net_plugin

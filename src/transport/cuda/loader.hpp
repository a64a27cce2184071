// loader.hpp: fills tables of functions from a library that has been opened.
//
// Knows nothing of what the functions do.
#pragma once

#include <dlfcn.h>

#include <string>

namespace tutti::transport::cuda {

class Loader {
 public:
  // Lifetime  the library stays open.
  explicit Loader(void* library) : library_(library) {}

  // Null: the library does not have it.
  template <typename Type>
  void try_to(Type*& function, const char* name) {
    function = reinterpret_cast<Type*>(dlsym(library_, name));
  }
  // The same for what must be there.
  template <typename Type>
  void operator()(Type*& function, const char* name) {
    try_to(function, name);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }

  const std::string& missing() const { return missing_; }  // the first; empty: nothing is

 private:
  void* library_;
  std::string missing_;
};

}  // namespace tutti::transport::cuda

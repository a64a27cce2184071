// api.hpp: what the functions of nccl.h share. Each is a line or a few here; what they do is said
// in nccl.h, and done a folder above.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "base/try.hpp"
#include "nccl/abi.hpp"
#include "nccl/group.hpp"
#include "nccl/handles.hpp"
#include "tutti/nccl.h"

// Every pncclName is also there as ncclName, weak, so that tools can stand in front of it. An alias
// is of its own file's functions, which is why this is a macro and not a list somewhere.
#define TUTTI_ALSO_AS_NCCL(name) \
  extern "C" __attribute__((weak, alias("pnccl" #name))) decltype(pnccl##name) nccl##name

namespace tutti::nccl {

// Runs `body`, which returns a Status; what it throws (memory that is out) does not get out.
template <typename Body>
ncclResult_t answer(const char* function, const Body& body) {
  try {
    return report(function, body());
  } catch (const std::exception& error) {
    return report(function, Status(StatusCode::system_error, error.what()));
  }
}

// The same for what is put into the thread's group, or is one of its own: a refusal is the group's,
// too. `body` gets the group and the function's shared way of ending is applied.
template <typename Body>
ncclResult_t answer_in_group(const char* function, const Body& body) {
  bool in_progress = false;
  const ncclResult_t result = answer(function, [&] {
    Group& group = Group::of_this_thread();
    group.begin();
    const Status status = body(group);
    if (!status.ok()) group.fail(status);
    const Status ended = group.end(in_progress);
    return status.ok() ? ended : status;
  });
  return result == ncclSuccess && in_progress ? ncclInProgress : result;
}

// Errors  invalid_argument, naming what is null.
inline Status check_pointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return Status();
  return Status(StatusCode::invalid_argument, std::string(name) + " is null");
}

inline Status no_such_thing(const char* instead) { return {StatusCode::unsupported, instead}; }

}  // namespace tutti::nccl

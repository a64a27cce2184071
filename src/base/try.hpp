// try.hpp: TUTTI_TRY, the one way a failure travels up through our own functions.
#pragma once

#include "tutti/status.hpp"

namespace tutti::base {

inline Status as_status(Status status) { return status; }

template <typename T>
Status as_status(const Result<T>& result) {
  return result.status();
}

}  // namespace tutti::base

// TUTTI_TRY(expression): returns the Status of `expression` to our caller unless it is ok.
#define TUTTI_TRY(expression)                                                    \
  do {                                                                           \
    if (::tutti::Status tutti_try_status = ::tutti::base::as_status(expression); \
        !tutti_try_status.ok())                                                  \
      return tutti_try_status;                                                   \
  } while (false)

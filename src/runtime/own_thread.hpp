// own_thread.hpp: how the library makes a thread of its own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <string>
#include <system_error>
#include <thread>

#include "tutti/status.hpp"

namespace tutti::runtime {

// A thread with a name (15 letters at most) that takes no signals: those are the program's
// business, on its own threads. Errors  system_error when the system has no more threads.
inline Result<std::thread> begin_own_thread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> made = Status();
  try {
    made = std::thread(std::move(body));
    pthread_setname_np(made->native_handle(), name);
  } catch (const std::system_error& error) {
    made =
        Status(StatusCode::system_error, std::string("no thread could be made: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

}  // namespace tutti::runtime

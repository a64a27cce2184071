// attach.cc: see attach.hpp.
#include "perf/floors/attach.hpp"

#include <sys/uio.h>

#include <cstdio>
#include <cstdlib>

namespace tutti::floors {
namespace {

// The system may copy a part of what it was asked for.
template <class Transfer>
void all_of(std::byte* here, const std::byte* there, std::size_t bytes, Transfer transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const iovec local = {here + done, bytes - done};
    const iovec remote = {const_cast<std::byte*>(there) + done, bytes - done};
    const ssize_t moved = transfer(&local, &remote);
    if (moved <= 0) {
      std::perror("reaching into the other process's memory");
      std::_Exit(1);
    }
    done += static_cast<std::size_t>(moved);
  }
}

}  // namespace

comparison::Buffers Attach::enter(const comparison::Buffers& mine) {
  // Written only when it changes, so that the line stays with the other.
  comparison::Buffers& told = told_[workers_.index()].buffers;
  if (told.input != mine.input || told.output != mine.output) told = mine;
  workers_.meet();
  return told_[workers_.other()].buffers;
}

void Attach::read(std::byte* to, const std::byte* other, std::size_t bytes) const {
  all_of(to, other, bytes, [this](const iovec* local, const iovec* remote) {
    return process_vm_readv(workers_.other_process(), local, 1, remote, 1, 0);
  });
}

void Attach::write(std::byte* other, const std::byte* from, std::size_t bytes) const {
  all_of(const_cast<std::byte*>(from), other, bytes,
         [this](const iovec* local, const iovec* remote) {
           return process_vm_writev(workers_.other_process(), local, 1, remote, 1, 0);
         });
}

}  // namespace tutti::floors

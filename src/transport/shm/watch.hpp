// watch.hpp: userfaultfd: the kernel's word on what happens to memory of this process, and its help
// in holding threads off while memory is moved.
//
// Two of them, because they are asked for different things. The watch hears that watched memory is
// unmapped, moved, or emptied (madvise), before the thread that does it goes on; the hold lets
// nobody store into held memory. Both have to bear stores that the kernel makes for a thread (a
// read(2) into the memory): else such a call would fail in a program that did nothing wrong. That
// takes a privilege, without which nothing of it is open.
//
// Knows addresses only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::shm {

// Held memory can be read by all and written by nobody.
class Hold {
 public:
  // Errors  unsupported, with what would help.
  Status open();
  // False when somebody else has a hand on that memory. Requires  whole pages that exist.
  bool begin(std::uintptr_t memory, std::size_t bytes);
  // Whether memory is watched. Requires  nobody holds it.
  bool is_watched(std::uintptr_t memory, std::size_t bytes) const;
  // Lets everybody go on: with the memory that was held, or with what was mapped in its place.
  void give_up(std::uintptr_t memory, std::size_t bytes);
  void end_replaced(std::uintptr_t memory, std::size_t bytes);
  void close() { file_.close(); }

 private:
  base::Descriptor file_;
};

// What happened to watched memory.
struct WatchEvent {
  enum class Kind {
    nothing,
    unmapped,  // gone, from `begin` to `end`
    moved,     // from [begin, end) to `to`, where it may be longer
    emptied,   // it shall read as zeros; nobody touches what is there until wake()
    touched,   // a thread waits at `begin` for memory that its page tables lack: see show()
  };
  Kind kind = Kind::nothing;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uintptr_t to = 0;
};

class Watch {
 public:
  // Errors  unsupported, with what would help.
  Status open();
  bool begin(std::uintptr_t memory, std::size_t bytes);  // of a memory file, all of it there
  void end(std::uintptr_t memory, std::size_t bytes);

  // Waits until something has happened. What it is says next(), which also lets the thread go on
  // that did it: look at nothing else in between.
  void wait() const;
  WatchEvent next() const;

  // False while a thread unmaps, moves or empties watched memory and next() has not told yet. The
  // kernel changes this together with the memory, so that whoever got memory at an address that
  // was watched knows. Cost: a system call.
  bool settled() const;

  // Puts the file's page into the page tables, and lets those who wait for it go on.
  void show(std::uintptr_t page) const;
  // Lets those who wait try again.
  void wake(std::uintptr_t memory, std::size_t bytes) const;
  void close() { file_.close(); }

 private:
  base::Descriptor file_;
};

}  // namespace tutti::transport::shm

// descriptor.hpp: the one owner of what the kernel hands out by number.
#pragma once

#include <utility>
#include <vector>

struct msghdr;

namespace tutti::base {

// An open file descriptor (a file, a socket, a pipe's end), closed on destruction.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { close(); }

  int number() const { return number_; }  // -1: none
  bool open() const { return number_ >= 0; }
  explicit operator bool() const { return open(); }
  void close();

 private:
  int number_ = -1;
};

// Those that came with a message of a Unix socket (recvmsg).
std::vector<Descriptor> take_descriptors(msghdr& header);

}  // namespace tutti::base

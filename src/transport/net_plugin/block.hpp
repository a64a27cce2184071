// block.hpp: memory for the slots of one connection, registered with the plugin as long as the
// connection lives.
//
// Knows Device; does not know what lies in a slot.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/try.hpp"
#include "transport/net_plugin/plugin.hpp"

namespace tutti::transport::net_plugin {

class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Errors  those of the device; system_error: no memory.
  Status make(Device& device, void* connection, std::size_t bytes) {
    memory_.reset(new (std::align_val_t{kAlignment}, std::nothrow) std::byte[bytes]());
    if (!memory_) return Status(StatusCode::system_error, "there is no memory for its slots");
    TUTTI_TRY(device.register_memory(connection, memory_.get(), bytes, registration_));
    bytes_ = bytes;
    registered_ = true;
    return Status();
  }
  // Before the connection is closed; the memory itself stays until afterwards, because some of it
  // may still be received into.
  void withdraw(Device& device, void* connection) {
    if (std::exchange(registered_, false)) device.deregister_memory(connection, registration_);
  }

  std::byte* at(std::size_t offset) { return memory_.get() + offset; }
  void* registration() const { return registration_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kAlignment = 4096;
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<std::byte[], Free> memory_;
  void* registration_ = nullptr;
  std::size_t bytes_ = 0;
  bool registered_ = false;
};

}  // namespace tutti::transport::net_plugin

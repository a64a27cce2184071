// endpoint.hpp: one connection whose frames carry checksums; see transport.hpp.
//
// The payload stays where it is: the sender sums it in the room that it built it in, the receiver
// in the queue that it will read it from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/checked/transport.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::checked {

// Which connection a frame belongs to. One direction of an endpoint.
struct Direction {
  std::uint64_t context = 0;
  Rank from = 0;
  Rank to = 0;
  int channel = 0;
};

// Sums the frames of one direction.
class Summer {
 public:
  explicit Summer(const Direction& direction);

  std::uint32_t sum(std::uint64_t number, std::uint32_t tag,
                    std::span<const std::byte> payload) const;

 private:
  std::uint32_t start_;  // over what is the same for all frames
};

class CheckedEndpoint final : public Endpoint {
 public:
  // Lifetime  of `inner` and of the place for the first failure of any endpoint: longer than this.
  CheckedEndpoint(Endpoint& inner, const Direction& out, Status& first_failure);

  void share_core() override { inner_.share_core(); }
  std::span<std::byte> reserve(std::size_t bytes) override;
  void commit(std::uint32_t tag, std::size_t bytes) override;
  bool peek(Frame& frame) override;
  void release() override;
  void signal(Signal which, std::uint64_t value) override { inner_.signal(which, value); }
  std::uint64_t signalled(Signal which) override { return inner_.signalled(which); }
  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  Status status() const override { return status_.ok() ? inner_.status() : status_; }

 private:
  bool agrees(const Frame& frame);
  void report(const Frame& frame, std::uint32_t expected, std::uint32_t found);
  void report_short(const Frame& frame);
  std::string place() const;
  std::string likely_cause(const Frame& frame, std::uint32_t found) const;
  void fail(std::string text);

  Endpoint& inner_;
  Direction out_;
  Summer sent_sums_;
  Summer received_sums_;
  std::uint64_t sent_ = 0;      // frames committed
  std::uint64_t received_ = 0;  // frames released
  std::span<std::byte> room_;   // what was reserved, with room for the checksum
  bool verified_ = false;       // the frame at the head of the queue
  Status status_;
  Status& first_failure_;
};

}  // namespace tutti::transport::checked

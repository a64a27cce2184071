// private_transport.hpp: a transport whose ranks keep some memory to themselves, or show it to the
// system only. The memory transport shares all of it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "unit/transport/forwarding.hpp"

namespace tutti::runtime::testing {

// Of memory that the system copies: what tests say of it, and see of it.
struct Attached {
  std::size_t copies = 0;
  // Asked before each copy: what becomes of it.
  std::function<Status()> answer = [] { return Status(); };
};

class PrivateTransport : public transport::testing::ForwardingTransport {
 public:
  // Whether the next buffer that is shown to a peer may be addressed by it.
  using Shares = std::function<bool()>;

  // Whether the next message finds no room.
  using Refuses = std::function<bool()>;

  // `attached`: all memory can be copied so; null: none.
  PrivateTransport(std::unique_ptr<Transport> inner, Shares shares, Attached* attached = nullptr,
                   Refuses refuses = nullptr)
      : ForwardingTransport(std::move(inner)),
        shares_(std::move(shares)),
        refuses_(std::move(refuses)),
        attached_(attached) {}

  TransportTraits traits() const override {
    TransportTraits traits = ForwardingTransport::traits();
    traits.attaches = attached_ != nullptr;
    return traits;
  }
  bool all_attached() override { return attached_ != nullptr; }

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    auto inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    auto& mine = endpoints_[{peer, channel}];
    if (mine == nullptr) mine = std::make_unique<PrivateEndpoint>(**inner, *this);
    return mine.get();
  }

  std::span<std::byte> reserve_for_all(std::span<Endpoint* const> endpoints,
                                       std::size_t bytes) override {
    if (refuses_ && refuses_()) return {};
    return inner().reserve_for_all(inner_ones(endpoints), bytes);
  }
  std::span<std::byte> reserve_in_place(std::span<Endpoint* const> endpoints, Endpoint& from,
                                        std::size_t bytes) override {
    if (refuses_ && refuses_()) return {};
    const std::span<std::byte> room = inner().reserve_in_place(
        inner_ones(endpoints), static_cast<PrivateEndpoint&>(from).inner(), bytes);
    if (room.data() != nullptr) ++in_place_;
    return room;
  }
  void commit_for_all(std::span<Endpoint* const> endpoints, std::uint32_t tag,
                      std::size_t bytes) override {
    ++for_all_;
    inner().commit_for_all(inner_ones(endpoints), tag, bytes);
  }
  // Frames that were written once for several peers.
  void wake_sharers() override {
    ++wakes_;
    inner().wake_sharers();
  }
  void await_shared(const std::atomic<std::uint64_t>* word, std::uint64_t number) override {
    awaited_ = word;
    inner().await_shared(word, number);
  }

  // How often sleepers were woken, and what this one's sleep is to end by; null: nothing shared.
  std::size_t wakes() const { return wakes_; }
  const std::atomic<std::uint64_t>* awaited() const { return awaited_; }
  std::size_t for_all() const { return for_all_; }
  // Those of them that took the place of a peer's.
  std::size_t in_place() const { return in_place_; }
  // How often this rank asked where a peer's memory lies, and until when what it was told is right.
  struct Imports {
    std::size_t asked = 0;
    std::uint64_t generation = 0;
  };
  Imports& imports() { return imports_; }

 private:
  class PrivateEndpoint : public transport::testing::ForwardingEndpoint {
   public:
    PrivateEndpoint(Endpoint& inner, PrivateTransport& of)
        : ForwardingEndpoint(inner), of_(of), attached_(of.attached_) {}

    std::span<std::byte> reserve(std::size_t bytes) override {
      if (of_.refuses_ && of_.refuses_()) return {};
      return ForwardingEndpoint::reserve(bytes);
    }
    MemoryReference export_memory(const void* memory, std::size_t bytes) override {
      return of_.shares_() ? inner().export_memory(memory, bytes) : MemoryReference();
    }
    std::byte* import_memory(const MemoryReference& reference, std::size_t bytes) override {
      ++of_.imports_.asked;
      return inner().import_memory(reference, bytes);
    }
    std::uint64_t import_generation() const override { return of_.imports_.generation; }
    using ForwardingEndpoint::inner;
    bool attached() const override { return attached_ != nullptr; }
    MemoryReference attach_memory(const void* memory, std::size_t) override {
      return attached_ != nullptr ? MemoryReference::of_attached(memory) : MemoryReference();
    }
    Status read_attached(std::byte* to, std::uint64_t from, std::size_t bytes) override {
      return copy(to, reinterpret_cast<const std::byte*>(from), bytes);
    }
    Status write_attached(std::uint64_t to, const std::byte* from, std::size_t bytes) override {
      return copy(reinterpret_cast<std::byte*>(to), from, bytes);
    }

   private:
    Status copy(std::byte* to, const std::byte* from, std::size_t bytes) {
      const Status answer = attached_->answer();
      if (!answer.ok()) return answer;
      ++attached_->copies;
      std::copy(from, from + bytes, to);
      return answer;
    }

    PrivateTransport& of_;
    Attached* attached_;
  };

  std::span<Endpoint* const> inner_ones(std::span<Endpoint* const> endpoints) {
    inner_ones_.clear();
    for (Endpoint* endpoint : endpoints)
      inner_ones_.push_back(&static_cast<PrivateEndpoint*>(endpoint)->inner());
    return inner_ones_;
  }

  Shares shares_;
  Refuses refuses_;
  Attached* attached_;
  Imports imports_;
  std::size_t wakes_ = 0;
  const std::atomic<std::uint64_t>* awaited_ = nullptr;
  std::size_t for_all_ = 0;
  std::size_t in_place_ = 0;
  std::vector<Endpoint*> inner_ones_;
  std::map<std::pair<Rank, int>, std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace tutti::runtime::testing

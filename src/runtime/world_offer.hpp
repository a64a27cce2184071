// world_offer.hpp: how a world of threads gets from the rank that made it to the others. They are
// told a ticket, by whatever they talk through already, and not an address: when the making fails
// its maker may be gone before another asks, and what it had with it.
#pragma once

#include <memory>
#include <string>

#include "transport/memory/transport.hpp"

namespace tutti::runtime {

// A world that its maker holds out to the other threads of this process.
//
// Lifetime   ends the offer, and not the world. The maker keeps it until all have taken.
// Threading  any thread may take.
class WorldOffer {
 public:
  explicit WorldOffer(std::shared_ptr<transport::MemoryWorld> world);
  ~WorldOffer();
  WorldOffer(const WorldOffer&) = delete;
  WorldOffer& operator=(const WorldOffer&) = delete;

  // What others take it by: 8 bytes, of no other offer of this process.
  const std::string& ticket() const { return ticket_; }

  // Null when the offer has ended, or never was.
  static std::shared_ptr<transport::MemoryWorld> take(const std::string& ticket);

 private:
  std::string ticket_;
};

}  // namespace tutti::runtime

// The offers of this process, by their tickets.
#include "runtime/world_offer.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace tutti::runtime {
namespace {

struct Offers {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<transport::MemoryWorld>> by_ticket;
  std::uint64_t made = 0;
};

// Never destroyed: threads may outlive what is static.
Offers& offers() {
  static Offers* const all = new Offers;
  return *all;
}

}  // namespace

WorldOffer::WorldOffer(std::shared_ptr<transport::MemoryWorld> world) {
  Offers& all = offers();
  const std::scoped_lock lock(all.mutex);
  const std::uint64_t number = ++all.made;
  ticket_.resize(sizeof number);
  std::memcpy(ticket_.data(), &number, sizeof number);
  all.by_ticket.emplace(ticket_, std::move(world));
}

WorldOffer::~WorldOffer() {
  Offers& all = offers();
  const std::scoped_lock lock(all.mutex);
  all.by_ticket.erase(ticket_);
}

std::shared_ptr<transport::MemoryWorld> WorldOffer::take(const std::string& ticket) {
  Offers& all = offers();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.by_ticket.find(ticket);
  return found == all.by_ticket.end() ? nullptr : found->second;
}

}  // namespace tutti::runtime

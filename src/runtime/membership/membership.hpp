// membership.hpp: who of a communicator's ranks is still there, and how they come to know it: the
// news of a failure reaches also ranks that share no connection with it, and the survivors agree on
// who they are.
//
// A rank whose communicator has failed connects to the ranks at distances 1, 2, 4, ... from it and
// tells them; whoever hears it does likewise, so that the news goes round in about log2 of the
// ranks steps and past as many dead ones. The channel that it uses is its own, and made on first
// use.
//
// As the executor: a non-blocking state machine over a transport, the same in the simulated world.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/membership/agreement.hpp"
#include "runtime/membership/mailbox.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

class Membership {
 public:
  // Lifetime  of the transport: longer.
  Membership(Transport& transport, int channel);

  // Tells the others that this rank's communicator has failed; the first time only.
  void spread(const Status& failure);

  // What a peer told in the same way, as it is to be reported here.
  std::optional<Status> hear();

  // A question to a rank that is waited for: whether it makes the same call. Of every rank that
  // asked, its latest.
  void inquire(Rank whom, std::span<const std::byte> record);
  std::optional<std::pair<Rank, std::vector<std::byte>>> take_inquiry();

  // The next agreement; see agreement.hpp.
  void begin(std::uint64_t flags, std::string blob) { agreement_.begin(flags, std::move(blob)); }
  bool under_way() const { return agreement_.under_way(); }
  std::optional<Decision> take_decision() { return agreement_.take_decision(); }
  std::vector<Rank> awaited() const { return agreement_.awaited(); }
  const std::vector<bool>& lost_ranks() const { return agreement_.lost_ranks(); }

  // Whether others may count on what this rank has to say.
  bool in_use() const { return spread_ || agreement_.number() > 0; }

  // Tells of a death that was seen otherwise.
  void lost(Rank rank) { agreement_.lost(rank); }

  // Moves messages, after the transport was polled. True when anything moved.
  bool advance();

 private:
  Transport& transport_;
  Mailbox mailbox_;
  Agreement agreement_;
  std::map<Rank, std::vector<std::byte>> inquiries_;
  bool spread_ = false;
};

}  // namespace tutti::runtime

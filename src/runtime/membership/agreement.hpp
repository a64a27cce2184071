// agreement.hpp: how the ranks of a communicator agree although some of them die: on who is left,
// on a word of flags, and on one string from each. All who come to a decision come to the same one,
// also those that die right after (uniform agreement).
//
// The lowest living rank coordinates. It asks all others for their contributions, proposes the sum
// of them, and when everybody who lives has the proposal, says that it is decided. Whoever takes
// over from a coordinator that died asks again, and a proposal that anybody holds goes before a new
// one: had it been decided, everybody living would hold it. Two round trips, one message each way
// between the coordinator and each other rank; messages between two ranks keep their order.
//
// Relies on deaths being told truly (`lost`): a rank that is slow is waited for, not given up.
// Agreements of one communicator are numbered; all ranks begin the same ones in the same order.
//
// Knows no transport and no clock: what is to be sent comes out as data. Messages come from peers,
// so they are checked; one that makes no sense is the loss of its sender.
//
// Source: rotating coordinators with a perfect failure detector; N. Lynch, Distributed Algorithms,
// chapter 6; G. Bosilca et al., "Failure detection and propagation in HPC systems", SC 2016.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::runtime {

struct Decision {
  std::uint32_t number = 0;                 // of the agreement, from 1
  std::uint64_t flags = ~std::uint64_t{0};  // the bits that all contributions have
  std::vector<bool> lost;                   // by rank
  std::vector<std::string> blobs;           // by rank; empty of those whose contribution is missing

  friend bool operator==(const Decision&, const Decision&) = default;
};

class Agreement {
 public:
  Agreement(Rank self, int size);

  // Begins the next agreement. Requires  none is under way.
  void begin(std::uint64_t flags, std::string blob);
  bool under_way() const { return under_way_; }
  std::uint32_t number() const { return instance_; }  // of the latest

  // What happened.
  void received(Rank from, std::string_view message);
  void lost(Rank rank);

  const std::vector<bool>& lost_ranks() const { return lost_; }

  // What to send, in order.
  struct Message {
    Rank to = 0;
    std::string bytes;
  };
  std::vector<Message> take_outgoing();

  // The ranks whose end must be noticed for this to come to an end.
  std::vector<Rank> watched() const;

  // Once, when it is decided.
  std::optional<Decision> take_decision();

  // Whom it waits for; empty when nothing is under way.
  std::vector<Rank> awaited() const;

 private:
  struct Proposal {
    Rank proposer = 0;
    Decision decision;
  };
  struct Contribution {
    std::uint64_t flags = 0;
    std::string blob;
    std::optional<Proposal> held;
  };

  Rank coordinator() const;
  bool coordinates() const { return coordinator() == self_; }
  bool is_lost(Rank rank) const { return lost_[static_cast<std::size_t>(rank)]; }
  void move();
  void ask_all();
  void propose_if_complete();
  void decide_if_held();
  void decide(const Decision& decision);
  void take(Rank from, std::uint8_t kind, std::string_view body);
  void take_join(Rank from, std::string_view body);
  void take_proposal(Rank from, std::string_view body);
  void take_decided(Rank from, std::string_view body);
  void answer_late(Rank to, std::uint32_t instance);
  void merge_lost(std::string_view bits);
  std::string encode_join() const;
  void send(Rank to, std::uint8_t kind, std::uint32_t instance, std::string_view body);

  Rank self_;
  int size_;
  std::vector<bool> lost_;
  bool under_way_ = false;
  std::uint32_t instance_ = 0;  // the one that is under way, or the last
  Contribution mine_;
  std::optional<Rank> joined_;  // the coordinator that has our contribution
  bool asked_ = false;          // as coordinator
  std::map<Rank, Contribution> contributions_;
  std::optional<Proposal> proposed_;  // ours, as coordinator
  std::vector<bool> acknowledged_;
  std::optional<Decision> decision_;  // of the last that was decided
  bool fresh_ = false;                // not taken yet
  struct Early {
    Rank from = 0;
    std::uint8_t kind = 0;
    std::string body;
  };
  std::vector<Early> early_;  // of the next agreement
  std::vector<Message> outgoing_;
};

}  // namespace tutti::runtime

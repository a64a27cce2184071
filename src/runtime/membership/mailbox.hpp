// mailbox.hpp: messages of any length between ranks that may die, over the frames of one channel of
// a transport. Made for the few words that ranks exchange when something has gone wrong, not for
// speed: connections appear on first use, and a peer that is lost costs nothing but itself.
//
// Knows frames; does not know what the messages mean, never blocks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/transport.hpp"

namespace tutti::runtime {

class Mailbox {
 public:
  static constexpr std::size_t kMessageBytesMax = std::size_t{64} << 20;

  Mailbox(Transport& transport, int channel) : transport_(transport), channel_(channel) {}

  void send(Rank to, std::string message);

  // Connects to the rank, so that its end is noticed.
  void watch(Rank rank) { line(rank); }

  // Moves what can be moved, after the transport was polled. True when anything moved.
  // `seeks_leavers`: a rank that has closed its communicator is lost, too, though nothing is to be
  // sent to it. Only for those who need its answer: who has left may have done its part.
  bool advance(bool seeks_leavers);

  // The next whole message that arrived.
  std::optional<std::pair<Rank, std::string>> take();

  // Ranks found lost since the last call: dead, or gone.
  std::vector<Rank> take_lost();

  // Connections that peers made come to life, too. Cost: a look at every peer.
  void answer_callers();

  // A signal to all who are connected now or later; and the first word heard from any of them.
  void announce(Signal which, std::uint64_t word);
  std::optional<std::pair<Rank, std::uint64_t>> heard(Signal which);

 private:
  struct Line {
    Endpoint* endpoint = nullptr;  // null: never could be reached
    bool lost = false;
    std::deque<std::string> outgoing;
    std::size_t sent = 0;  // of the first
    std::string incoming;
  };

  Line& line(Rank rank);
  bool flush(Line& line);
  bool receive(Rank rank, Line& line);
  static bool finds_lost(Line& line, bool seeks_leavers);
  void lose(Rank rank, Line& line);

  Transport& transport_;
  int channel_;
  std::map<Rank, Line> lines_;
  std::deque<std::pair<Rank, std::string>> arrived_;
  std::vector<Rank> lost_;
  std::optional<std::pair<Signal, std::uint64_t>> announced_;
};

}  // namespace tutti::runtime

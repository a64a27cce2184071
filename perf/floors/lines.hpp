// lines.hpp: the floor of short calls: what the other core needs is written into cache lines that
// both share, and neither touches the other's buffers.
#pragma once

#include "perf/floors/floor.hpp"

namespace tutti::floors {

class Lines {
 public:
  // Uses the first kBytes of what the workers share.
  Lines(Workers& workers, int ranks);

  static constexpr std::size_t kMostBytes = 4096;  // of a message
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  // None where a message would be too long.
  std::vector<Way> ways(const Call& call);

 private:
  struct Line;
  struct Mailbox;

  // What one worker has to tell the other in a call.
  std::size_t message_bytes(const Call& call) const;
  const std::byte* message(const Call& call);
  void take(const Call& call, const std::byte* theirs);
  void take_own_blocks(const Call& call);

  void run(const Call& call, bool flag_in_each_line);
  void send(const Call& call, bool flag_in_each_line);
  void receive(const Call& call, bool flag_in_each_line);

  Mailbox& box(int owner) const;
  bool sends(const Call& call) const;
  bool receives(const Call& call) const;
  Few own(const Call& call, bool output, std::size_t at) const;

  Workers& workers_;
  int held_;
  std::uint64_t turn_ = 0;
  std::uint64_t seen_ = 0;  // of the turns that the other is done with, as far as known
};

}  // namespace tutti::floors

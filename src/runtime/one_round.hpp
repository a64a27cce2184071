// one_round.hpp: a small call of one round, laid flat: what the rank sends, whom it hears, and what
// it does with that. Such calls need none of what makes sure that steps come in their order: all is
// sent first, then what needs nobody is done, which hides how long messages are under way, then all
// is awaited, then the rest is done in the order of the program.
//
// A call in which others have given this rank something when it comes may be one as well, though it
// sends what it makes of that: such a rank relays. It is one round where those others did come.
//
// Made once for a shape, like the short program that it is read from.
//
// Knows nothing of transports or time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/call_program.hpp"
#include "runtime/short_program.hpp"

namespace tutti::runtime {

class OneRound {
 public:
  static constexpr std::uint32_t kOwn = ~std::uint32_t{0};  // the rank itself, among peers

  // A part of the rank's own memory, for a peer (by stream number of the program).
  struct Send {
    std::uint32_t peer = 0;
    Buffer buffer = Buffer::input;
    std::size_t offset = 0;  // Units: bytes
    std::size_t bytes = 0;
  };
  // The message of a peer.
  struct Receive {
    std::uint32_t peer = 0;
    std::size_t bytes = 0;
  };
  using Receives = std::vector<Receive>;
  // Where something lies: in the peer's message, or in the rank's own memory.
  struct Place {
    std::uint32_t peer = kOwn;
    Buffer buffer = Buffer::input;
    std::size_t offset = 0;
  };
  // What is done once all is sent or, unless it is early, there; operands by number.
  struct Action {
    StepKind kind = StepKind::copy;
    bool finish = false;
    bool early = false;
    std::size_t elements = 0;
    std::uint32_t sources = 0;
    std::uint32_t destinations = 0;
    std::uint32_t end = 0;

    bool is_one_copy() const { return kind == StepKind::copy && end - sources == 2; }
  };

  // Becomes empty where the program is more than that: where something is sent that was received,
  // but for one sum that is kept, too; more than one message goes one way, or a message does not
  // fit a send at once.
  void lay_out(const CallProgram& program, const ShortProgram& steps, std::size_t element_bytes);
  // From now on the messages of these peers are looked for first.
  template <typename Predicate>
  void hear_first(const Predicate& first) {
    std::stable_partition(receives_.begin(), receives_.end(),
                          [&](const Receive& receive) { return first(receive.peer); });
  }
  void clear();

  bool empty() const { return actions_.empty() && sends_.empty(); }
  // Whether what is sent is made of messages: which those are, and the step that makes it.
  bool relays() const { return !gathered_.empty(); }
  const Receives& gathered() const { return gathered_; }
  const Action& relay() const { return relay_; }
  std::uint64_t relay_bit() const { return relay_bit_; }
  // Whether several peers get the same, and enough of it that to write it once is quicker.
  bool tells_all_alike() const { return alike_; }
  const std::vector<Send>& sends() const { return sends_; }
  const Receives& receives() const { return receives_; }
  // The first early() of them need nobody; done twice, they do the same.
  const std::vector<Action>& actions() const { return actions_; }
  std::size_t early() const { return early_; }
  const Place& place(std::uint32_t operand) const { return places_[operand]; }
  std::size_t memory_bytes() const;

 private:
  bool add(const CallProgram& program, const ShortProgram& steps, const ShortStep& step,
           std::size_t element_bytes);
  bool add_relay(const CallProgram& program, const ShortProgram& steps, const ShortStep& step,
                 std::size_t element_bytes);
  void add_sources(const CallProgram& program, const ShortProgram& steps, const ShortStep& step,
                   std::size_t element_bytes, Receives& receives, Action& action);
  static Place place_of(const CallProgram& program, const ShortProgram& steps, std::uint32_t i);
  bool sends_are_alike() const;

  Receives gathered_;
  Action relay_;
  std::uint64_t relay_bit_ = 0;  // of its step
  std::vector<Send> sends_;
  Receives receives_;
  std::vector<Action> actions_;
  std::size_t early_ = 0;
  std::vector<Place> places_;
  bool alike_ = false;
};

}  // namespace tutti::runtime

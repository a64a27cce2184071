// direct_round.hpp: a short direct call that meets its peers once and then waits for nobody until
// its end: what it may do before the peers are there, what it does when they are, and which words
// it has to hear before it is over. All messages travel from memory to memory, and are ready at
// arrival (docs/adr/0007-what-is-ready-at-arrival.md).
//
// Made from a program whose ways are decided; right for as long as they are decided alike.
//
// Knows nothing of transports or time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/call_program.hpp"
#include "runtime/short_program.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

class DirectRound {
 public:
  // That a message of a peer's stream was stored or taken.
  struct Word {
    std::uint32_t peer = 0;
    Signal which = Signal::produced;
    bool of_received = false;  // a message that is received here, else one that is sent
    std::uint32_t ordinal = 0;
  };
  // Of the destinations of a step.
  enum class Part : std::uint8_t { all, own, peers };
  // A step by number, or what of it goes to some of its destinations, and the words that are said
  // when that is done.
  struct Action {
    std::uint32_t step = 0;
    Part part = Part::all;
    bool early = false;  // it needs no peer, ...
    bool spare = false;  // ... is a copy for oneself, and no other step waits for it
    std::uint32_t words = 0;
    std::uint32_t words_end = 0;
    bool pulls = false;    // it reads a peer's memory
    bool vouches = false;  // its words say that something is there that was perhaps made of that
  };

  // Becomes empty where the program is more than that.
  void lay_out(const CallProgram& program, const ShortProgram& steps);
  void clear();

  bool empty() const { return actions_.empty() && ends_.empty(); }
  // In the order in which they are done: the first early() of them before the peers are met; those
  // from spare() on whenever something is waited for, and at last before the end. What a rank
  // copies of its own memory for itself and for peers is two of them.
  const std::vector<Action>& actions() const { return actions_; }
  std::size_t early() const { return early_; }
  std::size_t spare() const { return spare_; }
  const Word& word(std::uint32_t number) const { return words_[number]; }
  // What is heard at last.
  const std::vector<Word>& ends() const { return ends_; }
  std::size_t memory_bytes() const;

 private:
  bool add(const CallProgram& program, const ShortProgram& steps, std::uint32_t number);
  bool add_landing(const CallProgram& program, const ShortStep& step);
  static bool harms_nobody(const CallProgram& program, const ShortProgram& steps,
                           const ShortStep& step);
  bool copies_for_both(const CallProgram& program, const ShortStep& step) const;
  void sort(const ShortProgram& steps);

  std::vector<Action> actions_;
  std::vector<Word> words_;
  std::vector<Word> ends_;
  std::size_t early_ = 0;
  std::size_t spare_ = 0;
  std::uint64_t early_steps_ = 0;  // by bit
  bool pulls_ = false;             // one of actions_ does
  std::uint64_t open_steps_ = 0;   // those that are complete at the end only
};

}  // namespace tutti::runtime

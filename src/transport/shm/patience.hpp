// patience.hpp: when memory is tried again that was moved in vain.
//
// Programs that get and free a buffer around each call would have it moved each time, which takes
// longer than the call does. Each time that memory at an address could not be moved, or went before
// that paid, the next attempt is put off for twice as many calls. Programs that keep a buffer for
// some calls and get the next one at the same address have it moved at once.
//
// Knows addresses and times. Does not know memory.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/shm/pages.hpp"

namespace tutti::transport::shm {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  // Whether it is time to try memory that begins there.
  bool over(std::uintptr_t begin) {
    Slot& slot = slot_of(begin);
    if (slot.begin != begin || slot.wait == 0) return true;
    --slot.wait;
    return false;
  }
  // It was moved, from the one time to the other.
  void moved(std::uintptr_t begin, Clock::time_point from, Clock::time_point to) {
    Slot& slot = own_slot(begin);
    slot.moved = to;
    slot.worth_keeping = kWorth * (to - from);
  }
  // It is gone.
  void lost(std::uintptr_t begin, Clock::time_point now) {
    Slot& slot = own_slot(begin);
    if (slot.worth_keeping > Clock::duration::zero() && now - slot.moved >= slot.worth_keeping)
      slot = {.begin = begin};
    else
      put_off(slot);
  }
  // It could not be moved.
  void refused(std::uintptr_t begin) { put_off(own_slot(begin)); }

 private:
  static constexpr unsigned kTimesMost = 12;
  static constexpr unsigned kSlotBits = 8;
  // After so many times the time of the move it has paid, if calls would else take 1.5 times as
  // long and the program does little else.
  static constexpr int kWorth = 2;

  struct Slot {
    std::uintptr_t begin = 0;
    unsigned times = 0;
    unsigned wait = 0;
    Clock::time_point moved = {};
    Clock::duration worth_keeping = {};  // for how long at least; 0: it was not moved
  };

  static void put_off(Slot& slot) {
    slot.times = std::min(slot.times + 1, kTimesMost);
    slot.wait = (1U << slot.times) - 1;
    slot.worth_keeping = {};
  }
  // By the high bits of the product: those of large buffers differ in high bits only.
  Slot& slot_of(std::uintptr_t begin) {
    return slots_[begin / kPageBytes * std::uint64_t{0x9e37'79b9'7f4a'7c15} >> (64 - kSlotBits)];
  }
  // Whoever had it before is forgotten.
  Slot& own_slot(std::uintptr_t begin) {
    Slot& slot = slot_of(begin);
    if (slot.begin != begin) slot = {.begin = begin};
    return slot;
  }

  std::array<Slot, std::size_t{1} << kSlotBits> slots_ = {};
};

}  // namespace tutti::transport::shm

// progress.hpp: the works of one process help each other. A thread that waits and finds nothing to
// do for itself drives the other communicators of the process that have started works, so that
// asynchronous works move although nobody waits for them, and ranks that are threads need no core
// of their own.
#pragma once

namespace tutti::runtime {

// Something that can be moved forward by any thread.
class Driven {
 public:
  virtual ~Driven() = default;

  // Moves it forward if no other thread is doing so; true when anything moved.
  // Threading  any thread. Blocking  never.
  virtual bool drive() = 0;
};

// The process's list of those that have started works. It belongs to the process because threads
// of different communicators meet nowhere else.
// Threading  any thread.
void begin_driving(Driven& driven);
void end_driving(Driven& driven);  // Ensures  no other thread is inside driven.drive()

// Drives all but `self`; true when anything moved.
bool drive_others(const Driven& self);

}  // namespace tutti::runtime

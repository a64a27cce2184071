// progress.hpp: the works of one process help each other. A thread that waits and finds nothing to
// do for itself drives the other communicators of the process that have started works, so that
// asynchronous works move although nobody waits for them, and ranks that are threads need no core
// of their own. Where no thread waits at all, because the program computes meanwhile, a thread of
// the library's own takes over.
//
// That thread is made for the first work that was started and not complete at once, and for what
// others may still ask of a rank that has failed or agreed on something. It sleeps while there is
// neither, gives waiters a moment to come, and leaves alone what somebody drives: a waiter is
// quicker, and a hand-over costs more than most calls take.
#pragma once

namespace tutti::runtime {

// What the progress thread found; the later, the more there is to do.
enum class Tending {
  nothing,  // no started work, and nobody who may ask
  listens,  // no started work, and nobody asked
  tended,   // somebody else drives it
  idle,     // nothing moved
  moved,
};

// Something that can be moved forward by any thread.
class Driven {
 public:
  virtual ~Driven() = default;

  // Moves it forward if no other thread is doing so; true when anything moved.
  // Threading  any thread. Blocking  never.
  virtual bool drive() = 0;

  // The same for what nobody waits for; `driven`: somebody calls drive() now and then, so that
  // there is nothing to do but to say whether there is any.
  virtual Tending tend(bool driven) = 0;
};

// The process's list of those that have started works. It belongs to the process because threads
// of different communicators meet nowhere else.
// Threading  any thread.
void begin_driving(Driven& driven);
// Ensures   no other thread is inside one of driven's functions; after the last, there is no
//           progress thread.
void end_driving(Driven& driven);

// Drives all but `self`; true when anything moved.
bool drive_others(const Driven& self);

// Something began that nobody may wait for: the progress thread shall look after it. Where the
// system has no more threads, it moves when somebody waits.
void expect_work();

}  // namespace tutti::runtime

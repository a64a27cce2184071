// stream.hpp: operations one after the other, in the background. A Stream takes an operation and
// returns at once; one thread per stream makes them in their order. Events order operations of
// different streams.
//
//   tutti::Stream stream;
//   stream.all_reduce(comm, std::span(gradients), tutti::ReduceOp::sum);
//   stream.run([&] { return optimizer_step(gradients); });
//   ... compute something else ...
//   const tutti::Status status = stream.synchronize();
//
// Knows nothing of how a collective is made: it calls communicators as any program does.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "tutti/communicator.hpp"

#pragma GCC visibility push(default)
namespace tutti {

namespace runtime {
class EventState;
class StreamState;
}  // namespace runtime

// A point in a stream: reached when everything enqueued before it has been done. Copies are the
// same event; it may outlive its stream.
//
// Threading  any thread. In a child of the process that made it, whoever waits gets an error.
class Event {
 public:
  Event() = default;  // of no stream: reached
  explicit Event(std::shared_ptr<const runtime::EventState> state);

  bool query() const;  // reached, well or not

  // Blocks until reached. Errors: what the stream had failed with by then; the stream keeps it too.
  // invalid_argument: an operation waits for what its own stream does later.
  Status synchronize() const;

 private:
  friend class Stream;
  std::shared_ptr<const runtime::EventState> state_;
};

// An ordered queue of operations. Movable; the destructor waits for all of them, and an error that
// nobody asked for by synchronize() goes with it.
//
// After the first error the operations that follow are skipped, until synchronize() has returned
// it. Communicator::abort() ends an operation that waits for its peers; before agree() or shrink()
// of a communicator that has failed, synchronize() the streams that use it, or call them there.
//
// Threading  one thread at a time. Operations run on a thread of the stream, made on first use;
//            they may enqueue others, also there, and end the stream, which then goes on without.
// Lifetime   what an operation uses must live until it is done. Of a communicator the stream keeps
//            what it needs, so that the Communicator itself may be moved or go.
// Blocking   as the operations: a collective ends at its deadline at the latest.
// Order      a communicator is used by one stream at a time, and by nobody else meanwhile: make one
//            stream wait for an event of the other before it goes on with the same communicator.
//            Ranks that share communicators enqueue in an order that does not wait in a circle.
class Stream {
 public:
  Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;  // waits for what this one still has to do
  ~Stream();

  // Enqueues `operation`, which must not throw, and returns at once.
  void run(std::function<Status()> operation);

  // The same for one that uses a communicator: `call` gets it back as its argument.
  // Errors  invalid_argument, as the stream's: another stream was using it at that moment.
  void run(Communicator& comm, std::function<Status(Communicator&)> call);

  // What is enqueued later waits for `event`, and is skipped where the event's stream had failed.
  void wait(const Event& event);

  // A point after all that is enqueued so far.
  Event record();

  // Blocks until all is done. Returns the first error since the last synchronize().
  Status synchronize();

  // ---- Collectives of spans, as Communicator has them. ----

  template <typename T>
  void all_reduce(Communicator& comm, std::span<T> data, Reduction op) {
    run(comm, [data, op](Communicator& c) { return c.all_reduce(data, op); });
  }
  template <typename T>
  void all_reduce(Communicator& comm, std::span<const T> input, std::span<T> output, Reduction op) {
    run(comm, [=](Communicator& c) { return c.all_reduce(input, output, op); });
  }
  template <typename T>
  void broadcast(Communicator& comm, std::span<T> data, Rank root) {
    run(comm, [data, root](Communicator& c) { return c.broadcast(data, root); });
  }
  template <typename T>
  void all_gather(Communicator& comm, std::span<const T> input, std::span<T> output) {
    run(comm, [=](Communicator& c) { return c.all_gather(input, output); });
  }
  template <typename T>
  void reduce_scatter(Communicator& comm, std::span<const T> input, std::span<T> output,
                      Reduction op) {
    run(comm, [=](Communicator& c) { return c.reduce_scatter(input, output, op); });
  }
  void barrier(Communicator& comm) {
    run(comm, [](Communicator& c) { return c.barrier(); });
  }

 private:
  runtime::StreamState& state();

  std::shared_ptr<runtime::StreamState> state_;
};

}  // namespace tutti
#pragma GCC visibility pop

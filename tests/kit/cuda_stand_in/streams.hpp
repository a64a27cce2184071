// streams.hpp: part of the stand-in for CUDA, which is a test kit and NOT CUDA: contexts, streams,
// events, captures and graphs. A stream is a thread, so that what is enqueued is really done later,
// and whoever blocks in it holds up only that stream.
//
// At the end of a program all threads are stopped, whatever they wait for, and calls are refused
// from then on, as CUDA's driver does it.
//
// What is left out: streams of a device do not share hardware, and the default stream waits for no
// other. Of a graph that was captured from many streams, the operations of each are done by a
// thread, and wait for one another only where events made them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "transport/cuda/types.hpp"

namespace stand_in {

using namespace tutti::transport::cuda;

using Operation = std::function<void()>;

// Whether the program ends. Whoever waits in a stream asks it now and then.
std::atomic<bool>& ending();

// A moment in a stream.
class Point {
 public:
  void reach();
  bool reached();
  void wait();  // or until the program ends
  double milliseconds_since(Point& earlier);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
};

// An operation of a graph, and which others come before it, besides that before it in its lane.
struct Node {
  Operation operation;
  Stream lane = nullptr;
  std::vector<std::size_t> after;
};

struct GraphState {
  std::vector<Node> nodes;
  // Does all of it, or what is done before the program ends. Blocking.
  void run() const;
};

struct CaptureState {
  std::uint64_t id = 0;
  int mode = kCaptureModeGlobal;
  std::thread::id thread;
  Stream origin = nullptr;
  bool invalid = false;
  GraphState graph;
  std::map<Stream, std::vector<std::size_t>> ends;  // what a stream's next operation comes after
  std::set<std::size_t> open;                       // nodes that no other comes after

  void add(Stream stream, Operation operation);
};

// What is enqueued, and the thread that does it. Lifetime: until join() was true, or for ever.
class Work {
 public:
  void begin();
  void push(Operation operation);
  bool idle();
  void wait_until_idle();
  void end();   // once all is done
  void stop();  // without doing more
  // Joins the thread if it comes to its end in that time.
  bool join(std::chrono::milliseconds patience);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  bool busy_ = false;
  bool ending_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace stand_in

struct CUctx_st {
  int ordinal = 0;
  int retained = 0;
  CUstream_st* default_stream = nullptr;
};

struct CUstream_st {
  CUctx_st* context = nullptr;
  std::shared_ptr<stand_in::Work> work;
  std::shared_ptr<stand_in::CaptureState> capture;  // null: none
};

struct CUevent_st {
  std::shared_ptr<stand_in::Point> point;           // null: never recorded
  std::shared_ptr<stand_in::CaptureState> capture;  // recorded in this one
  std::vector<std::size_t> captured;                // after these nodes of it
  bool timed = true;
};

namespace stand_in {

// All streams of a process. Threading: any thread.
class Streams {
 public:
  static Streams& instance();  // never destroyed

  Stream make(Context context);
  Code destroy(Stream stream);
  Code enqueue(Stream stream, Operation operation);
  Context context_of(Stream stream);  // null: not a stream
  Code query(Stream stream);
  Code synchronize(Stream stream);
  Code synchronize(Context context);  // all of its streams; none may be captured
  void wait_until_idle(Context context);

  Event make_event(bool timed);
  Code destroy(Event event);
  Code record(Event event, Stream stream);
  Code wait(Stream stream, Event event);
  Code query(Event event);
  Code synchronize(Event event);
  Code elapsed(float* milliseconds, Event from, Event to);

  Code begin_capture(Stream stream, int mode);
  Code end_capture(Stream stream, std::shared_ptr<GraphState>& graph);
  Code capture_info(Stream stream, int* status, std::uint64_t* id);
  // What may not be called while some thread captures; `mode` is the caller's own.
  Code unsafe_call(int mode);

  std::size_t stream_count();
  std::size_t event_count();

  // Ends all threads but those that are in a host function which does not return.
  void stop();

 private:
  std::shared_ptr<Work> begin_work();
  Stream known(Stream stream);  // null: not a stream
  Code join(CaptureState& capture, Stream stream, Event event);
  std::shared_ptr<Point> point_of(Event event, Code& code);

  std::mutex mutex_;
  std::map<Stream, std::unique_ptr<CUstream_st>> streams_;
  std::map<Event, std::unique_ptr<CUevent_st>> events_;
  std::vector<std::shared_ptr<CaptureState>> captures_;  // under way
  std::vector<std::shared_ptr<Work>> works_;             // with a thread to join
  std::uint64_t next_capture_ = 1;
};

// Graphs and their instances that have not been destroyed.
std::size_t graph_count();

inline constexpr int kMostDevices = 64;

// The contexts of devices; the current one of each thread. Threading: any thread.
Context primary_context(int ordinal);
int device_count();  // CUDA_STAND_IN_DEVICES, or 4
bool is_device(int ordinal);

}  // namespace stand_in

// group.hpp: what a thread has called since its outermost ncclGroupStart, over any of its
// communicators, and what becomes of it at the end.
//
// A call outside of a group is a group of its own. Communicators that are made in one group are
// made at the same time, each on a thread, since each waits for the others; calls of several
// communicators are all started before any is waited for, so that one thread can be several ranks.
#pragma once

#include <memory>
#include <vector>

#include "nccl/comm.hpp"
#include "tutti/nccl.h"

namespace tutti::nccl {

// The making of a communicator.
struct Job {
  std::shared_ptr<Comm> comm;    // null: this rank takes part and gets none
  std::shared_ptr<Comm> parent;  // null: of none; jobs of one parent are done in their order
  ncclComm_t* place = nullptr;   // where the caller wants it
  Comm::Maker maker;
};

// Threading  its thread's.
class Group {
 public:
  static Group& of_this_thread();

  void begin() { ++depth_; }
  bool open() const { return depth_ > 0; }

  void add(Job job);
  // Requires  the call was checked.
  Status add(const std::shared_ptr<Comm>& comm, void* stream, Call call);
  // What a call in this group was refused for; then nothing of the group is done.
  void fail(const Status& why);

  // Does it all when the outermost group ends. `in_progress`: something goes on by itself.
  // Blocking  but for communicators that do not block, and for calls on streams.
  // Errors    the first; invalid_argument: no group was begun.
  Status end(bool& in_progress);

  // How long the calls would take, and forgets them. Units: us. Ends the group as end() does.
  Result<double> simulate();

 private:
  struct Part {
    std::shared_ptr<Comm> comm;
    void* stream = nullptr;
    std::vector<Call> calls;
  };

  // Of which some calls may not be on their stream yet.
  struct Open {
    Comm* comm = nullptr;
    DeviceSide::Enqueuing enqueuing;
  };

  Status finish();
  Status do_jobs(std::vector<Job> jobs, bool& in_progress);
  Status do_calls(std::vector<Part>& parts);
  static Status enqueue_together(std::vector<Open> open);
  static Status run_together(std::vector<Part*>& parts);

  int depth_ = 0;
  Status failure_;
  std::vector<Job> jobs_;
  std::vector<Part> parts_;
};

}  // namespace tutti::nccl

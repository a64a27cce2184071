// workers.hpp: the ranks of a communicator as threads would have them, each with a device, a stream
// and the worker behind it; all enqueued by one thread, as programs with many devices do.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "device.hpp"
#include "nccl/stream_worker.hpp"

namespace tutti::testing {

using nccl::Call;
using nccl::CallKind;
using nccl::StreamWorker;

// What workers report.
class Failures {
 public:
  void add(const Status& status) {
    std::lock_guard lock(mutex_);
    all_.push_back(status);
  }
  std::vector<Status> all() const {
    std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Status> all_;
};

template <typename T>
Call reduce_call(const T* input, T* output, std::size_t count) {
  return {CallKind::all_reduce, input, output, count, data_type_of<T>(), ReduceOp::sum, 0};
}

// One rank: its device is current while it is asked for something.
class Member {
 public:
  Member(const cuda::Driver& driver, Communicator comm, int streams)
      : driver_(driver), comm_(std::move(comm)), context_(context_of(driver, comm_.rank() % 4)) {
    const auto scope = enter();
    for (int i = 0; i < streams; ++i) streams_.push_back(*cuda::OwnStream::make(driver_));
    const Rank rank = comm_.rank();
    auto made = StreamWorker::make(
        driver_, context_, rank, comm_.size(),
        [this](std::span<const Call> calls) { return nccl::run(comm_, calls); },
        [this](const Status& status) { failures_.add(status); });
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    worker_ = *std::move(made);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  cuda::ContextScope enter() const { return *cuda::ContextScope::enter(driver_, context_); }

  template <typename T>
  DeviceArray<T>& device(const std::vector<T>& values) {
    const auto scope = enter();
    auto array = std::make_shared<DeviceArray<T>>(driver_, values);
    arrays_.push_back(array);
    return *array;
  }

  cuda::Stream stream(int i = 0) const { return streams_[static_cast<std::size_t>(i)].get(); }
  StreamWorker& worker() { return *worker_; }
  std::unique_ptr<StreamWorker>& worker_owner() { return worker_; }
  Communicator& comm() { return comm_; }
  const Failures& failures() const { return failures_; }

  void launch(std::vector<Call> calls, int stream_number = 0) {
    const Status status = worker_->launch(stream(stream_number), std::move(calls));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  void synchronize() const {
    for (const cuda::OwnStream& stream : streams_)
      EXPECT_TRUE(driver_.synchronize(stream.get()).ok());
  }
  void end_worker() { worker_.reset(); }

 private:
  const cuda::Driver& driver_;
  Communicator comm_;
  cuda::Context context_;
  std::vector<cuda::OwnStream> streams_;
  std::vector<std::shared_ptr<void>> arrays_;
  Failures failures_;
  std::unique_ptr<StreamWorker> worker_;  // goes first
};

class Members {
 public:
  Members(const cuda::Driver& driver, int size, int streams = 1) {
    CommunicatorOptions options;
    options.timeout = std::chrono::seconds(60);
    auto comms = *Communicator::for_threads(size, options);
    for (Communicator& comm : comms)
      members_.push_back(std::make_unique<Member>(driver, std::move(comm), streams));
  }

  int size() const { return static_cast<int>(members_.size()); }
  Member& operator[](int rank) { return *members_[static_cast<std::size_t>(rank)]; }

  template <typename Function>
  void each(Function function) {
    for (int rank = 0; rank < size(); ++rank) function(rank, (*this)[rank]);
  }
  void synchronize() {
    each([](Rank, Member& member) { member.synchronize(); });
  }
  void expect_no_failure() {
    each([](Rank rank, Member& member) {
      for (const Status& status : member.failures().all())
        ADD_FAILURE() << "rank " << rank << ": " << status.to_string();
    });
  }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tutti::testing

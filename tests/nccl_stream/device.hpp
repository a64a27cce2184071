// device.hpp: what tests do with the devices of the stand-in for CUDA: memory, streams, graphs.
//
// Does not know calls or workers.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "kit/cuda_stand_in/stand_in.hpp"
#include "transport/cuda/driver.hpp"

namespace tutti::testing {

namespace cuda = transport::cuda;

// The stand-in's own functions; all null where another driver was found, or none.
struct StandIn {
  decltype(&tutti_stand_in_fail) fail = nullptr;
  decltype(&tutti_stand_in_count) count = nullptr;
  decltype(&tutti_stand_in_is_mapped_elsewhere) is_mapped_elsewhere = nullptr;
  decltype(&cuStreamBeginCapture_v2) begin_capture = nullptr;
  decltype(&cuStreamEndCapture) end_capture = nullptr;
  decltype(&cuGraphInstantiateWithFlags) instantiate = nullptr;
  decltype(&cuGraphLaunch) launch = nullptr;
  decltype(&cuGraphExecDestroy) destroy_instance = nullptr;
  decltype(&cuGraphDestroy) destroy_graph = nullptr;
};

inline const StandIn& stand_in() {
  static const StandIn found = [] {
    StandIn s;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr || dlsym(library, "tutti_stand_in_fail") == nullptr) return s;
    const auto load = [&]<typename F>(F& function, const char* name) {
      function = reinterpret_cast<F>(dlsym(library, name));
    };
    load(s.fail, "tutti_stand_in_fail");
    load(s.count, "tutti_stand_in_count");
    load(s.is_mapped_elsewhere, "tutti_stand_in_is_mapped_elsewhere");
    load(s.begin_capture, "cuStreamBeginCapture_v2");
    load(s.end_capture, "cuStreamEndCapture");
    load(s.instantiate, "cuGraphInstantiateWithFlags");
    load(s.launch, "cuGraphLaunch");
    load(s.destroy_instance, "cuGraphExecDestroy");
    load(s.destroy_graph, "cuGraphDestroy");
    return s;
  }();
  return found;
}

inline TuttiStandInCounts counts() {
  TuttiStandInCounts now{};
  stand_in().count(&now);
  return now;
}

// A test that needs the stand-in, and is skipped where it is not what programs find.
class OnStandIn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (stand_in().fail == nullptr)
      GTEST_SKIP() << "libcuda.so.1 is not the stand-in; LD_LIBRARY_PATH selects it";
    ASSERT_NE(cuda::find().driver, nullptr) << cuda::find().reason;
  }

  static const cuda::Driver& driver() { return *cuda::find().driver; }
};

inline cuda::Context context_of(const cuda::Driver& driver, int ordinal) {
  return *driver.retain_primary(*driver.device(ordinal));
}

// Memory of the device that is current when it is made.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(const cuda::Driver& driver, const std::vector<T>& values)
      : driver_(driver), context_(*driver.current()), size_(values.size()) {
    memory_ = static_cast<T*>(*driver_.allocate(std::max<std::size_t>(size_, 1) * sizeof(T)));
    write(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    const auto scope = cuda::ContextScope::enter(driver_, context_);
    EXPECT_TRUE(driver_.deallocate(memory_).ok());
  }

  T* data() const { return memory_; }

  // On a stream of their own: what others have on theirs does not matter.
  void write(const std::vector<T>& values) {
    const auto scope = cuda::ContextScope::enter(driver_, context_);
    const auto stream = cuda::OwnStream::make(driver_);
    EXPECT_TRUE(
        driver_.copy_to_device(memory_, values.data(), values.size() * sizeof(T), stream->get())
            .ok());
    EXPECT_TRUE(driver_.synchronize(stream->get()).ok());
  }
  std::vector<T> read() const {
    const auto scope = cuda::ContextScope::enter(driver_, context_);
    std::vector<T> values(size_);
    const auto stream = cuda::OwnStream::make(driver_);
    EXPECT_TRUE(
        driver_.copy_to_host(values.data(), memory_, size_ * sizeof(T), stream->get()).ok());
    EXPECT_TRUE(driver_.synchronize(stream->get()).ok());
    return values;
  }

 private:
  const cuda::Driver& driver_;
  cuda::Context context_;
  std::size_t size_;
  T* memory_;
};

// A captured graph, ready to be replayed.
class Graph {
 public:
  // Captures what `enqueue` puts on the stream.
  template <typename Enqueue>
  Graph(cuda::Stream stream, Enqueue enqueue, int mode = cuda::kCaptureModeGlobal) {
    EXPECT_EQ(stand_in().begin_capture(stream, mode), cuda::kSuccess);
    enqueue();
    code_ = stand_in().end_capture(stream, &graph_);
    if (code_ == cuda::kSuccess) stand_in().instantiate(&instance_, graph_, 0);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (code_ != cuda::kSuccess) return;
    stand_in().destroy_instance(instance_);
    stand_in().destroy_graph(graph_);
  }

  int code() const { return code_; }
  void replay(cuda::Stream stream) const {
    EXPECT_EQ(stand_in().launch(instance_, stream), cuda::kSuccess);
  }

 private:
  int code_ = 0;
  StandInGraph graph_ = nullptr;
  StandInInstance instance_ = nullptr;
};

// Holds up a stream until it is opened, or goes.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }

  void hold(const cuda::Driver& driver, cuda::Stream stream) {
    EXPECT_TRUE(driver.call_host(stream, &Gate::wait, new std::shared_ptr<State>(state_)).ok());
  }
  void open() { state_->open.store(true); }
  bool reached() const { return state_->reached.load(); }

 private:
  struct State {
    std::atomic<bool> open{false};
    std::atomic<bool> reached{false};
  };

  static void wait(void* argument) {
    const std::unique_ptr<std::shared_ptr<State>> state(
        static_cast<std::shared_ptr<State>*>(argument));
    (*state)->reached.store(true);
    while (!(*state)->open.load()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace tutti::testing

// How often a communicator looks at its peers where nothing comes: whoever only starts a call goes
// on at once, and after a sleep everything is looked at, not only the message that is waited for.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "runtime/communicator_state.hpp"
#include "transport/memory/transport.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::runtime {
namespace {

struct Counts {
  int peeks = 0;
  int polls = 0;
  int sleeps = 0;
};

class CountingTransport : public transport::testing::ForwardingTransport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, Counts& counts)
      : ForwardingTransport(std::move(inner)), counts_(counts) {}

  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    auto inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    auto& mine = endpoints_[{peer, channel}];
    if (mine == nullptr) mine = std::make_unique<CountingEndpoint>(**inner, counts_);
    return mine.get();
  }
  Result<bool> poll() override {
    ++counts_.polls;
    return ForwardingTransport::poll();
  }
  void sleep(std::int64_t) override { ++counts_.sleeps; }  // and is woken at once

 private:
  class CountingEndpoint : public transport::testing::ForwardingEndpoint {
   public:
    CountingEndpoint(Endpoint& inner, Counts& counts)
        : ForwardingEndpoint(inner), counts_(counts) {}
    bool peek(Frame& frame) override {
      ++counts_.peeks;
      return inner().peek(frame);
    }

   private:
    Counts& counts_;
  };

  Counts& counts_;
  std::map<std::pair<Rank, int>, std::unique_ptr<Endpoint>> endpoints_;
};

// Rank 0 of two, whose peer never comes.
class Alone : public ::testing::Test {
 protected:
  void make(bool shares_core, std::chrono::milliseconds timeout = std::chrono::milliseconds(50)) {
    transport::TransportOptions options;
    options.size = 2;
    options.channel_count = 2;
    options.frame_bytes_max = 4096;
    options.queue_bytes = 8192;
    world_ = transport::MemoryWorld::make(options);
    CommunicatorParts parts;
    parts.transport =
        std::make_unique<CountingTransport>(transport::make_memory_transport(world_, 0), counts_);
    const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "one_shot");
    const auto schedule = collectives::build(**algorithm, 2, 0);
    const std::shared_ptr<const collectives::Plan> plan =
        std::make_shared<collectives::Plan>(collectives::Plan{
            "one_shot",
            {1, 4096, false},
            std::make_shared<collectives::LoweredProgram>(collectives::lower(*schedule, 0)),
            42});
    parts.plan_source = [plan](const collectives::PlanQuery&) { return plan; };
    parts.config.flight = base::FlightChoice::off;
    parts.config.progress = base::ProgressChoice::off;
    parts.config.log = base::LogLevel::error;
    parts.timeout = timeout;
    parts.ranks_share_cores = shares_core;
    if (shares_core) parts.neighbours = {false, true};
    state_ = std::make_shared<CommunicatorState>(std::move(parts));
    request_.collective = Collective::all_reduce;
    request_.type = DataType::int32;
    request_.input = request_.output = &value_;
    request_.count = 1;
  }

  Counts counts_;
  std::shared_ptr<transport::MemoryWorld> world_;
  std::shared_ptr<CommunicatorState> state_;
  CommunicatorState::Request request_;
  std::int32_t value_ = 1;
};

TEST_F(Alone, StartingACallDoesNotWaitForIt) {
  make(false);
  auto work = state_->start_work(request_);
  ASSERT_TRUE(work.ok()) << work.status().to_string();
  EXPECT_LT(counts_.peeks, 10);
  state_->abort();
  EXPECT_EQ(state_->wait(**work).code(), StatusCode::aborted);
}

TEST_F(Alone, WhoSleptLooksAtEverything) {
  for (const bool shares_core : {false, true}) {
    // A busy machine may not let it sleep often in a short time.
    for (int timeout_ms = 50; timeout_ms <= 5000; timeout_ms *= 10) {
      counts_ = {};
      make(shares_core, std::chrono::milliseconds(timeout_ms));
      EXPECT_EQ(state_->run(request_).code(), StatusCode::timeout);
      if (counts_.sleeps > 10) break;
    }
    EXPECT_GT(counts_.sleeps, 10);
    // The deadline may end the last sleep.
    EXPECT_GE(counts_.polls + 1, counts_.sleeps) << shares_core;
  }
}

}  // namespace
}  // namespace tutti::runtime

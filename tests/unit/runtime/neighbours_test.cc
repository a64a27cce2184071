// Ranks that take turns on a core: who hears of it.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/executor.hpp"
#include "transport/memory/transport.hpp"
#include "unit/runtime/world.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

// Notes whose connections hear that they share a core.
class NoticingTransport : public transport::testing::ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  Result<Endpoint*> endpoint(Rank peer, int channel) override {
    auto inner = ForwardingTransport::endpoint(peer, channel);
    if (!inner.ok()) return inner;
    made_.push_back(std::make_unique<Noticing>(**inner, peer, shared));
    return made_.back().get();
  }
  std::vector<Rank> shared;

 private:
  struct Noticing : transport::testing::ForwardingEndpoint {
    Noticing(Endpoint& inner, Rank of, std::vector<Rank>& heard)
        : ForwardingEndpoint(inner), peer(of), shared(heard) {}
    void share_core() override { shared.push_back(peer); }
    Rank peer;
    std::vector<Rank>& shared;
  };
  std::vector<std::unique_ptr<Noticing>> made_;
};

TEST(Neighbours, ConnectionsHearWhoSharesTheCore) {
  transport::TransportOptions options;
  options.size = 3;
  NoticingTransport transport(
      transport::make_memory_transport(transport::MemoryWorld::make(options), 1));
  Executor executor(transport);
  executor.share_core_with({true, true, false});
  const auto* one_shot = *collectives::find_algorithm(Collective::all_reduce, "one_shot");
  auto programs = collectives::lower_all(*collectives::build(*one_shot, 3, 0, 1));
  const collectives::Plan plan{
      "one_shot",
      {1, 4096, false},
      std::make_shared<collectives::LoweredProgram>(std::move(programs[1])),
      42};
  const Buffers buffers = make_buffers({Collective::all_reduce, 3, 0, 5}, 1, false);
  const Call call =
      Call::signed_as({1, Collective::all_reduce, DataType::int64, ReduceOp::sum, false, 0, 5, 42},
                      buffers.input, buffers.output);
  ASSERT_TRUE(executor.start(call, plan).ok());
  EXPECT_EQ(transport.shared, std::vector<Rank>{0});
}

}  // namespace
}  // namespace tutti::runtime

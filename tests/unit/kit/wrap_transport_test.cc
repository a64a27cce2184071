// CommunicatorOptions::wrap_transport: who is wrapped, with what consequences, and what is refused.
#include <gtest/gtest.h>

#include "kit/counting_transport.hpp"
#include "unit/kit/ranks.hpp"
#include "unit/runtime/processes.hpp"
#include "unit/transport/forwarding.hpp"

namespace tutti::kit {
namespace {

using namespace testing;

CommunicatorOptions wrapped_in(WrapTransport wrap) {
  CommunicatorOptions options;
  options.wrap_transport = std::move(wrap);
  return options;
}

TEST(WrapTransport, IsAskedOnceForEachCommunicator) {
  std::vector<Rank> asked;
  auto communicators = Communicator::for_threads(3, wrapped_in([&](auto inner) {
                                                   asked.push_back(inner->rank());
                                                   EXPECT_EQ(inner->size(), 3);
                                                   return inner;
                                                 }));
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  EXPECT_EQ(asked, (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ((*communicators)[1].transport()->rank(), 1);
}

// Also one of a single rank, which has nobody to talk to.
TEST(WrapTransport, IsAskedForARankAlone) {
  auto alone = Communicator::for_threads(1, wrapped_in(TrafficBook().wrapper()));
  ASSERT_TRUE(alone.ok());
  auto data = contributions(0, 10);
  EXPECT_TRUE((*alone)[0].all_reduce(std::span(data), ReduceOp::sum).ok());
  EXPECT_EQ(traffic_of((*alone)[0])->sent().payload_bytes, 0u);
}

TEST(WrapTransport, ShowsTheTransportOfWhoIsNotWrapped) {
  EXPECT_EQ(Communicator().transport(), nullptr);
  auto plain = Communicator::for_threads(2);
  ASSERT_TRUE(plain.ok());
  ASSERT_NE((*plain)[1].transport(), nullptr);
  EXPECT_EQ((*plain)[1].transport()->traits().name, "memory");
  EXPECT_EQ(traffic_of((*plain)[1]), nullptr);
}

// What the wrapper says of the transport is what plans are made for.
TEST(WrapTransport, MakesPlansForWhatItSays) {
  constexpr std::size_t kCount = 1 << 20;
  const auto lowering = [](const CommunicatorOptions& options) {
    auto communicators = Communicator::for_threads(2, options);
    return (*communicators)[0].explain(Collective::all_reduce, kCount, DataType::float32)->lowering;
  };
  EXPECT_EQ(lowering({}), "direct");
  EXPECT_EQ(lowering(wrapped_in(TrafficBook().wrapper())), "staged");
}

TEST(WrapTransport, RefusesWhatIsNoTransportOfThisRank) {
  const auto none = Communicator::for_threads(2, wrapped_in([](auto) { return nullptr; }));
  ASSERT_EQ(none.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(none.status().message().find("wrap_transport returned no transport where one of rank 0 "
                                         "of 2 was due"),
            std::string::npos)
      << none.status().to_string();

  class Impostor : public transport::testing::ForwardingTransport {
   public:
    using ForwardingTransport::ForwardingTransport;
    Rank rank() const override { return 1; }
  };
  const auto other = Communicator::for_threads(
      2, wrapped_in([](auto inner) { return std::make_unique<Impostor>(std::move(inner)); }));
  ASSERT_EQ(other.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(other.status().message().find("another rank's transport"), std::string::npos);
}

// Ranks that see their transport differently would choose different plans.
TEST(WrapTransport, IsGivenByAllRanksOrNone) {
  const int port = runtime::testing::free_port();
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < 2; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      Rendezvous meeting;
      meeting.rank = rank;
      meeting.size = 2;
      meeting.port = port;
      const auto made = Communicator::from_rendezvous(
          meeting, rank == 0 ? wrapped_in(TrafficBook().wrapper()) : CommunicatorOptions());
      const bool told = made.status().code() == StatusCode::mismatch &&
                        made.status().message().find("transport wrapped") != std::string::npos;
      _exit(told ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace tutti::kit

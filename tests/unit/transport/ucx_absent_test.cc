// ucx_absent_test.cc: where Tutti was built without UCX, every rank hears so, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/ucx/transport.hpp"
#include "transport/ucx/wire.hpp"

namespace tutti::transport {
namespace {

TEST(UcxAbsent, IsSaidToAllWithTheRemedy) {
  std::string card;
  const auto exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
    card = mine;
    return std::vector<std::string>{mine};
  };
  const Status status = make_ucx_transport({}, {}, exchange).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), testing::HasSubstr("apt install libucx-dev"));
  EXPECT_THAT(ucx::parse_card(card).status().message(), testing::HasSubstr("without UCX"));
}

}  // namespace
}  // namespace tutti::transport

// Which address a process meets others at, as NCCL_SOCKET_IFNAME chooses it.
#include "nccl/interfaces.hpp"

#include <gtest/gtest.h>

namespace tutti::nccl::test {
namespace {

const std::vector<Interface> kAll = {{"lo", "127.0.0.1", true},
                                     {"docker0", "172.17.0.1", false},
                                     {"eth0", "10.0.0.5", false},
                                     {"eth10", "10.1.0.5", false},
                                     {"ib0", "10.2.0.5", false}};

std::string chosen(const std::string& wanted, const std::vector<Interface>& all = kAll) {
  const auto found = choose_interface(all, wanted);
  return found.ok() ? found->name : found.status().message();
}

TEST(Interfaces, ThatLeadAwayComeFirst) {
  EXPECT_EQ(chosen(""), "eth0");
  EXPECT_EQ(chosen("", {kAll[0], kAll[1]}), "lo");
  EXPECT_EQ(chosen(",,"), "eth0");
}

TEST(Interfaces, AreNamedByPrefixes) {
  EXPECT_EQ(chosen("ib"), "ib0");
  EXPECT_EQ(chosen("eth1,ib"), "eth10");
  EXPECT_EQ(chosen("lo"), "lo");
  EXPECT_EQ(chosen("docker"), "docker0");
}

TEST(Interfaces, AreNamedExactly) {
  EXPECT_EQ(chosen("=eth10"), "eth10");
  EXPECT_EQ(chosen("=eth1"),
            "NCCL_SOCKET_IFNAME==eth1: no such network interface is up; there is: lo, docker0, "
            "eth0, eth10, ib0");
}

TEST(Interfaces, AreExcluded) {
  EXPECT_EQ(chosen("^eth"), "ib0");
  EXPECT_EQ(chosen("^=eth0"), "eth10");
  // What is left need not lead anywhere, but it is what was asked for.
  EXPECT_EQ(chosen("^eth,ib"), "lo");
}

TEST(Interfaces, OfNoHostAreNone) {
  EXPECT_EQ(chosen("", {}), "NCCL_SOCKET_IFNAME=: no such network interface is up; there is: none");
}

TEST(Interfaces, OfThisHostHaveAddresses) {
  const auto all = list_interfaces();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  for (const Interface& one : *all) {
    EXPECT_FALSE(one.name.empty());
    EXPECT_FALSE(one.address.empty()) << one.name;
    EXPECT_TRUE(one.loopback || one.address != "127.0.0.1") << one.name;
  }
}

}  // namespace
}  // namespace tutti::nccl::test

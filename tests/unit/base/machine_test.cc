// Names of kinds of machines: what tells them apart, on x86 and Arm, and that any text is safe.
#include "base/machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::base {
namespace {

TEST(Machine, X86IsTheModelOfItsFirstProcessor) {
  EXPECT_EQ(machine_kind("x86_64",
                         "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\n"
                         "model\t\t: 2\nmodel name\t: AMD EPYC\nprocessor\t: 1\n"
                         "model name\t: other\n",
                         2),
            "x86_64, AMD EPYC, family 26, model 2, 2 processors");
}

TEST(Machine, ArmIsItsPart) {
  EXPECT_EQ(machine_kind("aarch64", "processor: 0\nCPU implementer : 0x41\nCPU part : 0xd40", 1),
            "aarch64, implementer 0x41, part 0xd40, 1 processor");
}

TEST(Machine, AnythingGivesAShortPrintableName) {
  EXPECT_EQ(machine_kind("", "", 0), ", 0 processors");
  std::string odd = "model name : " + std::string(10'000, '\xff') + "\nmodel:\n:\n\n";
  for (const std::string& kind : {machine_kind(odd, odd, 5), machine_kind()}) {
    EXPECT_LE(kind.size(), 200U);
    EXPECT_TRUE(std::all_of(kind.begin(), kind.end(), [](char c) { return c >= ' ' && c <= '~'; }))
        << kind;
  }
}

TEST(Machine, ThisOneStaysTheSame) { EXPECT_EQ(machine_kind(), machine_kind()); }

}  // namespace
}  // namespace tutti::base

// launcher_shared_cores_test.cc: what ranks that share cores are told of their C library.
#include <gtest/gtest.h>

#include "cli/launcher/shared_cores.hpp"

namespace tutti::cli::launcher {
namespace {

std::string tunables_after(const base::Environment& before) {
  base::Environment environment = before;
  turn_off_restartable_sequences(environment);
  const std::string found = environment["GLIBC_TUNABLES"];
  environment.erase("GLIBC_TUNABLES");
  base::Environment rest = before;
  rest.erase("GLIBC_TUNABLES");
  EXPECT_EQ(environment, rest);
  return found;
}

TEST(SharedCores, TurnOffRestartableSequences) {
  EXPECT_EQ(tunables_after({{"PATH", "/bin"}}), "glibc.pthread.rseq=0");
  EXPECT_EQ(tunables_after({{"GLIBC_TUNABLES", ""}}), "glibc.pthread.rseq=0");
}

TEST(SharedCores, KeepOtherTunables) {
  EXPECT_EQ(tunables_after({{"GLIBC_TUNABLES", "glibc.malloc.check=1"}}),
            "glibc.malloc.check=1:glibc.pthread.rseq=0");
  EXPECT_EQ(tunables_after({{"GLIBC_TUNABLES", "my.glibc.pthread.rseq=1"}}),
            "my.glibc.pthread.rseq=1:glibc.pthread.rseq=0");
}

TEST(SharedCores, KeepWhatIsSetOfThem) {
  for (const char* set : {"glibc.pthread.rseq=1", "glibc.pthread.rseq=0",
                          "glibc.malloc.check=1:glibc.pthread.rseq=1"})
    EXPECT_EQ(tunables_after({{"GLIBC_TUNABLES", set}}), set);
}

}  // namespace
}  // namespace tutti::cli::launcher

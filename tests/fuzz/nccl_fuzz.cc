// The bytes of an ncclUniqueId, which come over whatever wire a program has, and the values of
// NCCL_* variables.
//
// Beyond not crashing: an id that is read is written as one that reads the same, and memory stays
// within a multiple of the text.
#include <algorithm>

#include "fuzz.hpp"
#include "nccl/environment.hpp"
#include "nccl/interfaces.hpp"
#include "nccl/unique_id.hpp"

namespace tutti::fuzz {

using namespace tutti::nccl;

namespace {

void read_id(std::string_view input) {
  char bytes[kUniqueIdBytes] = {};
  std::copy_n(input.begin(), std::min(input.size(), sizeof bytes), bytes);
  const auto id = UniqueId::read(bytes);
  if (!id.ok()) return;
  char written[kUniqueIdBytes];
  id->write(written);
  const auto again = UniqueId::read(written);
  TUTTI_ASSERT(again.ok() && again->address == id->address && again->port == id->port &&
                   again->secret == id->secret,
               "an id survives the way there and back");
}

}  // namespace

std::size_t input_bytes_max() { return 256; }

void run(std::string_view input) {
  const AllocationLimit limit(64 * input.size() + 16 * 1024);
  read_id(input);
  const std::string value(input);
  const Settings settings = read_settings({{"NCCL_ALGO", value},
                                           {"NCCL_DEBUG", value},
                                           {"NCCL_P2P_DISABLE", value},
                                           {"NCCL_SHM_DISABLE", value}});
  TUTTI_ASSERT(settings.ignored.empty(), "these mean something");
  const std::vector<Interface> all = {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.1", false}};
  const auto chosen = choose_interface(all, value);
  TUTTI_ASSERT(!chosen.ok() || chosen->name == "lo" || chosen->name == "eth0",
               "one of those that there are");
}

std::vector<std::string> seeds() {
  std::vector<std::string> made = {"Ring,Tree", "^tree", "INFO", "1", "=eth0", "^lo,docker"};
  for (const char* address : {"127.0.0.1", "fd00::1", "fe80::1234:5678:9abc:def0"}) {
    UniqueId id;
    id.address = address;
    id.port = 4711;
    id.secret = std::string(UniqueId::kSecretBytes, 's');
    char bytes[kUniqueIdBytes];
    id.write(bytes);
    made.emplace_back(bytes, sizeof bytes);
  }
  return made;
}

}  // namespace tutti::fuzz

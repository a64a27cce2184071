// The JSON in which a rank of the job says where it runs.
//
// Beyond not crashing: a card that is read encodes to one that reads the same; memory stays within
// a multiple of the text.
#include "fuzz.hpp"
#include "runtime/host.hpp"

namespace tutti::fuzz {

using namespace tutti::runtime;

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  const AllocationLimit limit(256 * input.size() + 16 * 1024);
  const auto card = decode_host_card(input);
  if (card.ok()) {
    const auto again = decode_host_card(encode(*card));
    TUTTI_ASSERT(again.ok() && *again == *card, "a card survives the way there and back");
  }
  // A name and settings of our own may hold any bytes.
  const std::size_t half = input.size() / 2;
  const HostCard odd{
      std::string(input.substr(0, half)), {1, 2}, std::string(input.substr(half)), 3, 4,
      std::string(input.substr(0, half))};
  TUTTI_ASSERT(decode_host_card(encode(odd)).ok(), "what we say can be read");
}

std::vector<std::string> seeds() {
  return {encode({"b00t/net:[4026531840]",
                  {0, 1, 5},
                  "transport auto, channels 0",
                  77,
                  99,
                  "/etc/tuning"}),
          R"({"host": "\u00e9", "cpus": [], "settings": "", "job": 7, "tuning": 0,)"
          R"( "tuning_source": "", "more": [1.5e3, null, {"a":1}]})",
          R"({"host": "h", "cpus": [99999999999], "settings": "s", "job": 18446744073709551615,)"
          R"( "tuning": 1, "tuning_source": "t"})",
          "[[[[", "{\"host\": \"\xff\"}"};
}

}  // namespace tutti::fuzz

// The record with which every call begins, from a rank that has joined the job.
//
// Beyond not crashing: what is read encodes to the bytes that were read; it can be shown.
#include <algorithm>
#include <span>

#include "fuzz.hpp"
#include "runtime/arrival.hpp"

namespace tutti::fuzz {

using namespace tutti::runtime;

std::size_t input_bytes_max() { return 128; }

void run(std::string_view input) {
  const AllocationLimit limit(4096);
  const auto bytes = std::as_bytes(std::span(input));
  const auto arrival = decode_arrival(bytes);
  if (!arrival) return;
  std::array<std::byte, kDirectArrivalBytes> again{};
  encode(*arrival, again);
  const std::size_t size = encoded_bytes(*arrival);
  TUTTI_ASSERT(size <= input.size(), "nothing is made up");
  TUTTI_ASSERT(
      std::equal(again.begin(), again.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin()),
      "a record encodes to what was read");
  TUTTI_ASSERT(!to_string(arrival->signature).empty(), "a signature can be shown");
}

std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (const bool direct : {false, true}) {
    Arrival arrival;
    arrival.signature = {.sequence = 3, .direct = direct, .root = 1, .count = 10, .plan_hash = 77};
    arrival.memory[1] = {2, 4096};
    std::array<std::byte, kDirectArrivalBytes> bytes{};
    encode(arrival, bytes);
    made.emplace_back(reinterpret_cast<const char*>(bytes.data()), encoded_bytes(arrival));
  }
  return made;
}

}  // namespace tutti::fuzz

// A tuning table: a file that people edit, and that TUTTI_TUNING_FILE may name anywhere.
//
// Beyond not crashing: what is accepted prints and reads again to the same, with the same hash;
// what it says to use is one of its lines; times are positive; memory stays within a multiple of
// the text.
#include "collectives/tuning.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::collectives;

constexpr std::size_t kSizes[] = {0, 8, 4096, std::size_t{1} << 20, ~std::size_t{0}};

void check_answers(const TuningPlace& place) {
  for (const Collective collective : kAllCollectives)
    for (const std::size_t bytes : kSizes) {
      const TunedUse* use = use_for(place, collective, bytes);
      TUTTI_ASSERT(use == nullptr || (use->collective == collective && use->from_bytes <= bytes),
                   "what to use begins at or below the size");
      for (const TunedTime& time : place.times) {
        const auto measured = measured_time(place, collective, bytes, time.choice.algorithm,
                                            time.choice.settings.direct);
        TUTTI_ASSERT(!measured || measured->us > 0, "what was measured took time");
      }
    }
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Result<TuningTable> table = TuningTable();
  {
    const AllocationLimit limit(256 * input.size() + 16 * 1024);
    table = tuning_from_text(input);
  }
  if (!table.ok()) return;
  const auto again = tuning_from_text(to_text(*table));
  TUTTI_ASSERT(again.ok() && *again == *table, "a table prints and reads again to the same");
  TUTTI_ASSERT(tuning_hash(*again) == tuning_hash(*table), "equal tables have equal hashes");
  for (const TuningPlace& place : table->places) {
    TUTTI_ASSERT(table->place(place.key) == &place, "a place is found by its key");
    check_answers(place);
  }
}

std::vector<std::string> seeds() {
  return {"tutti-tuning 1\nmachine x86_64, two processors\n",
          "# by hand\n\ntutti-tuning 1\r\nmachine m\n"
          "transport shm latency_ns=62.5 bandwidth=11.5 send_ns=60 receive_ns=6e1 signal_ns=0\n"
          "transport tcp payload_ns=1 step_ns=20 switch_ns=575\n"
          "place shm ranks=2 cores=2 direct=yes\n"
          "use all_reduce from=48KiB algorithm=direct lowering=direct channels=2 slice=128KiB\n"
          "use all_reduce from=0 algorithm=doubling lowering=staged\n"
          "use all_reduce from=1MiB algorithm=model\n"
          "time all_reduce size=8 algorithm=doubling lowering=staged channels=1 slice=1 us=0.8\n"
          "time all_reduce size=64M algorithm=doubling lowering=staged us=1.5e3 plain_us=7\n"
          "place tcp ranks=4 cores=2 direct=no\nuse barrier from=0 algorithm=model\n",
          "tutti-tuning 2\n"};
}

}  // namespace tutti::fuzz

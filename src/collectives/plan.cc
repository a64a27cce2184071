// The identity of a plan: a hash that differs when ranks would do different things.
#include "collectives/plan.hpp"

namespace tutti::collectives {
namespace {

// FNV-1a, 64 bits: stable across builds and machines, which std::hash is not.
// Source: Fowler, Noll, Vo, draft-eastlake-fnv.
class Fnv {
 public:
  void add(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) add_byte(static_cast<std::uint8_t>(value >> (8 * byte)));
  }
  void add(std::string_view text) {
    for (char c : text) add_byte(static_cast<std::uint8_t>(c));
    add(text.size());
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::uint64_t plan_hash(std::string_view algorithm, const GroupSizes& groups,
                        const ScheduleShape& shape, const PlanSettings& settings) {
  Fnv fnv;
  fnv.add(algorithm);
  fnv.add(groups.text());
  for (int value :
       {static_cast<int>(shape.collective), shape.ranks, shape.root, shape.chunks,
        shape.scratch_blocks, shape.message_chunks_max, settings.channels, settings.direct ? 1 : 0})
    fnv.add(static_cast<std::uint64_t>(value));
  fnv.add(settings.slice_bytes);
  return fnv.value();
}

}  // namespace tutti::collectives

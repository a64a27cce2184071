// Small calls whose ranks combine what they have in memory that all of them see (combining.hpp),
// instead of sending each other messages: the same sums in the same order as the program says
// (leaders_one_shot), whoever leads.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/pause.hpp"
#include "runtime/executor.hpp"

namespace tutti::runtime {
namespace {

std::size_t index(int value) { return static_cast<std::size_t>(value); }

}  // namespace

// Where it does not, the program is run as any other. All ranks find the same.
bool Executor::may_combine(const Call& call, const collectives::Plan& plan) const {
  const std::size_t bytes = call.signature.count * call.element_bytes();
  return plan.combining_group > 0 && combining_.possible() && bytes <= Combining::kBytesMax &&
         call.custom == nullptr && call.blocks == nullptr;
}

// In groups of so many, or not with 0.
void Executor::set_up_combining(int group_size) {
  std::vector<bool> near;
  if (group_size > 0) {
    const int ranks = transport_.size();
    near.resize(index(ranks / group_size));
    for (Rank rank = 0; rank < ranks; ++rank)
      if (is_neighbour(rank)) near[index(rank / group_size)] = true;
    source_pointers_.make_room(std::max(index(group_size), near.size()));
    destination_pointers_.make_room(2);
    far_pointers_.make_room(1);
  }
  combining_.group_into(group_size, std::move(near));
}

void Executor::begin_combining() {
  finished_ = false;
  const std::size_t bytes = call_.signature.count * element_bytes_;
  combining_.begin(bytes);
  if (combining_.comes_last()) return lead();
  if (bytes > 0) std::memcpy(combining_.part(), call_.input, bytes);
  if (combining_.lay(call_.record)) lead();
}

// Adds up what all of the group have, in the order of ranks, whoever does it.
void Executor::lead() {
  const Rank first = combining_.own_group() * combining_.group_size();
  source_pointers_.clear();
  for (Rank rank = first; rank < first + combining_.group_size(); ++rank) {
    const bool own = rank == transport_.rank();
    if (!own && !is_of_this_call(combining_.record_of_part(rank), rank)) [[unlikely]]
      return;
    source_pointers_.add(own ? call_.input : combining_.part_of(rank));
  }
  store_sum();
  combining_.show(call_.record);
  transport_.wake_sharers();
}

// From source_pointers_ to where others read it, and to where the group does.
void Executor::store_sum() {
  const std::size_t elements = call_.signature.count;
  destination_pointers_.clear();
  if (combining_.keeps_copy()) destination_pointers_.add(combining_.copy_of_sum());
  far_pointers_.clear();
  far_is_queued_ = true;
  sources_are_ = Sources::own;
  if (elements * element_bytes_ > StoreChoice::kLeastBytes) {
    far_pointers_.add(combining_.sum());
    return store_where_quicker(StepKind::reduce, false, elements);
  }
  destination_pointers_.add(combining_.sum());
  if (elements > 0) store(StepKind::reduce, false, elements, kernels::StoreHint::cached);
}

bool Executor::is_of_this_call(Combining::Record record, Rank rank) {
  if (std::memcmp(record.data(), call_.record.data(), kArrivalBytes) == 0) [[likely]]
    return true;
  const std::optional<Signature> theirs = decode_signature(record);
  if (theirs)
    fail(Status(StatusCode::mismatch,
                disagreement(transport_.rank(), call_.signature, rank, *theirs)));
  else
    fail(Status(StatusCode::corrupt_data,
                fmt::format("rank {} laid down an arrival record that makes no sense", rank)));
  return false;
}

// Whether all are there; looks for them up to `looks` times, or until what is missing needs this
// core in order to come.
bool Executor::find_sums(int looks) {
  while (combining_.misses_sum()) {
    if (combining_.find_next()) continue;
    if (combining_.next_is_near() || --looks < 0) return false;
    base::pause_core();
  }
  return true;
}

// All sums are there.
void Executor::end_combining() {
  source_pointers_.clear();
  for (int group = 0; group < combining_.groups(); ++group) {
    const Rank first = group * combining_.group_size();
    if (!is_of_this_call(combining_.record_of_sum(group), first)) [[unlikely]]
      return;
    const bool own = group == combining_.own_group() && combining_.keeps_copy();
    source_pointers_.add(own ? combining_.copy_of_sum() : combining_.sum_of(group));
  }
  destination_pointers_.clear();
  destination_pointers_.add(call_.output);
  sources_are_ = Sources::fetched;
  if (call_.signature.count > 0) store_own(StepKind::reduce, true, call_.signature.count);
  finished_ = true;
  if (has_plans_) note_plan();
}

bool Executor::advance_combining(int looks) {
  const int found = combining_.found();
  if (!find_sums(looks)) return combining_.found() > found;
  end_combining();
  return true;
}

void Executor::find_awaited_parts(Awaited& found) const {
  const int size = combining_.group_size();
  for (int group = 0; group < combining_.groups(); ++group) {
    if (combining_.has_sum(group)) continue;
    for (Rank rank = group * size; rank < (group + 1) * size; ++rank)
      if (rank != transport_.rank() && !combining_.has_laid(rank))
        found.add(rank, fmt::format("data from rank {}", rank));
  }
}

void Executor::prepare_to_sleep() {
  const bool waits = is_combining() && !done() && combining_.misses_sum();
  transport_.await_shared(waits ? combining_.next_word() : nullptr, combining_.number());
}

}  // namespace tutti::runtime

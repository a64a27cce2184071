// Point 4 of a step, once it is known where everything lies: what is computed, and which way it is
// stored.
//
// Large calls stream into the own buffers, which do not fit the caches anyway (stream_choice.hpp).
// What goes to another core, into its rank's buffer or into a queue that it reads from, goes the
// way that is quicker, and so do copies into the own buffers (store_choice.hpp). What a transport
// still sums or moves on is read again here: it stays in the caches.
#include <algorithm>

#include "runtime/executor.hpp"
#include "runtime/flight/ticks.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime {

using kernels::StoreHint;

// Where ranks share a core, how long a call takes says more of their turns; what the system copies
// goes its way.
void Executor::choose_stores() {
  finds_out_ = peers_read_at_once_ && neighbours_.empty() && !attaches() &&
               StreamChoice::may_stream(call_.signature.collective, result_bytes_) &&
               result_bytes_ < options_.streaming_bytes;
  streaming_ = finds_out_ ? stream_choice_.streams(call_.signature.collective, result_bytes_)
                          : result_bytes_ >= options_.streaming_bytes;
}

// Of the call, from when all were there.
void Executor::note_time(std::uint64_t ticks) {
  if (times_copies()) pull_choice_.took(copies_.now, second_way(meets_plain_), ticks);
  if (finds_out_) stream_choice_.took(ticks);
}

void Executor::forget_sources() {
  source_pointers_.clear();
  attached_sources_.clear();
  any_attached_ = false;
  sources_are_ = Sources::own;
}

void Executor::add_source(const CallOperand& operand, const std::byte* source) {
  source_pointers_.add(source);
  if (operand.is_message && !peers_[operand.stream].is_neighbour)
    sources_are_ =
        std::max(sources_are_, operand.way == Way::pull ? Sources::loaded : Sources::fetched);
  if (!attaches()) [[likely]]
    return;
  const bool attached = is_attached(operand);
  attached_sources_.push_back(attached ? peers_[operand.stream].endpoint : nullptr);
  any_attached_ |= attached;
}

void Executor::forget_destinations() {
  destination_pointers_.clear();
  attached_destinations_.clear();
  far_pointers_.clear();
  far_is_queued_ = false;
}

// A copy in place, or one that is pushed where it belongs. Addresses of another process say nothing
// here.
bool Executor::is_onto_itself(const CallOperand& operand, const std::byte* destination) const {
  const bool source_is_mine = !attaches() || attached_sources_.front() == nullptr;
  return destination == source_pointers_.front() && source_is_mine && !is_attached(operand);
}

void Executor::add_destination(const CallOperand& operand, std::byte* destination) {
  if (is_attached(operand)) [[unlikely]] {
    attached_destinations_.emplace_back(peers_[operand.stream].endpoint, destination);
    any_attached_ = true;
    return;
  }
  const bool slot = operand.is_message && operand.way == Way::staged;
  const bool pushed = operand.is_message && operand.way == Way::push;
  // Where all is streamed, slots are not, and the rest alike.
  const bool apart = streaming_ ? slot : (slot || pushed) && !peers_[operand.stream].is_neighbour;
  (apart ? far_pointers_ : destination_pointers_).add(destination);
  far_is_queued_ |= apart && slot;
}

// From source_pointers_ to destination_pointers_ and far_pointers_.
void Executor::compute(StepKind kind, bool finish, std::size_t elements) {
  if (any_attached_) [[unlikely]]
    return compute_attached(kind, finish, elements);
  if (far_pointers_.all().empty()) return store_own(kind, finish, elements);
  const std::size_t bytes = elements * element_bytes_;
  if (!peers_read_at_once_ || bytes < StoreChoice::kLeastBytes)
    return store_through_caches(StoreHint::cached, kind, finish, elements);
  store_where_quicker(kind, finish, elements);
}

// To destination_pointers_ only. Up to 4 KiB, to find out how that is best done costs what it
// gains.
void Executor::store_own(StepKind kind, bool finish, std::size_t elements) {
  if (streaming_) return store(kind, finish, elements, StoreHint::streaming);
  const std::size_t bytes = elements * element_bytes_;
  const bool has_choice = peers_read_at_once_ && bytes > StoreChoice::kLeastBytes &&
                          !destination_pointers_.all().empty();
  if (!has_choice || options_.stores == StoreHint::streaming)
    return store(kind, finish, elements, StoreHint::cached);
  if (options_.stores) return store(kind, finish, elements, *options_.stores);
  using Kind = StoreChoice::Kind;
  const bool loaded = sources_are_ == Sources::loaded;
  const Kind copy = loaded                             ? Kind::loaded_copy
                    : sources_are_ == Sources::fetched ? Kind::fetched_copy
                                                       : Kind::own_copy;
  const Kind sum = loaded ? Kind::loaded_sum : Kind::own_sum;
  const StoreHint way = stores_.choose(bytes, kind == StepKind::copy ? copy : sum);
  const std::uint64_t begun = stores_.wants_time() ? flight::ticks() : 0;
  store(kind, finish, elements, way);
  if (begun != 0) stores_.took(flight::ticks() - begun);
}

// Requires  at least StoreChoice::kLeastBytes.
void Executor::store_where_quicker(StepKind kind, bool finish, std::size_t elements) {
  if (options_.stores) return store_far(*options_.stores, kind, finish, elements);
  const std::size_t bytes = elements * element_bytes_;
  using Kind = StoreChoice::Kind;
  const Kind sum = far_is_queued_ ? Kind::queued_sum : Kind::pushed_sum;
  const Kind copy = far_is_queued_ ? Kind::queued_copy : Kind::pushed_copy;
  const StoreHint way = stores_.choose(bytes, kind == StepKind::copy ? copy : sum);
  const std::uint64_t begun = stores_.wants_time() ? flight::ticks() : 0;
  store_far(way, kind, finish, elements);
  if (begun != 0) stores_.took(flight::ticks() - begun);
}

void Executor::store_far(StoreHint way, StepKind kind, bool finish, std::size_t elements) {
  const bool copies_sum = way == StoreHint::string && kind != StepKind::copy && !streaming_;
  if (way == StoreHint::streaming || copies_sum)
    store_apart(way, kind, finish, elements);
  else
    store_through_caches(way, kind, finish, elements);
}

void Executor::store_through_caches(StoreHint way, StepKind kind, bool finish,
                                    std::size_t elements) {
  if (!streaming_) {
    for (std::byte* far : far_pointers_.all()) destination_pointers_.add(far);
    return store(kind, finish, elements, way);
  }
  // What is in the slots is read by other cores next, and by this one.
  const auto own = destination_pointers_.all();
  const bool in_place = std::any_of(own.begin(), own.end(), [&](const std::byte* destination) {
    const auto sources = source_pointers_.all();
    return std::find(sources.begin(), sources.end(), destination) != sources.end();
  });
  std::swap(destination_pointers_, far_pointers_);
  store(kind, finish, elements, way);
  source_pointers_.clear();
  source_pointers_.add(destination_pointers_.front());
  std::swap(destination_pointers_, far_pointers_);
  store(StepKind::copy, false, elements, in_place ? StoreHint::cached : StoreHint::streaming);
}

// What is not copied, or goes another way than the own part, which stays in the caches and is read
// again from there.
void Executor::store_apart(StoreHint way, StepKind kind, bool finish, std::size_t elements) {
  const bool apart = !streaming_ && !destination_pointers_.all().empty();
  if (apart) {
    store(kind, finish, elements, StoreHint::cached);
    source_pointers_.clear();
    source_pointers_.add(destination_pointers_.front());
    destination_pointers_.clear();
    kind = StepKind::copy;
  }
  for (std::byte* far : far_pointers_.all()) destination_pointers_.add(far);
  store(kind, finish && !apart, elements, way);
}

// From source_pointers_ to destination_pointers_, where there are any.
void Executor::store(StepKind kind, bool finish, std::size_t elements, kernels::StoreHint stores) {
  if (destination_pointers_.all().empty()) return;
  if (kind == StepKind::copy) {
    kernels::copy(source_pointers_.front(), destination_pointers_.all(), elements * element_bytes_,
                  stores);
    return;
  }
  if (call_.custom != nullptr) [[unlikely]]
    return fold({*call_.custom, call_.signature.type, source_pointers_.all(),
                 destination_pointers_.all(), elements},
                partial_results_);
  const bool divides = finish && call_.signature.op == ReduceOp::avg;
  kernels::reduce({call_.signature.type, call_.signature.op, source_pointers_.all(),
                   destination_pointers_.all(), elements,
                   divides ? program_->lowered().shape.ranks : 1, stores,
                   program_->lowered().ordered});
}

}  // namespace tutti::runtime

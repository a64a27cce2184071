// Copies from and to plain memory of other processes, which this one cannot load or store, but have
// the system copy (Endpoint::attached). To the program (lowered.hpp) such memory is addressable,
// and messages travel direct; only point 4 of a step is another.
//
// Sums go by pieces that stay in a cache: what peers have is copied to the piece's place beside the
// others, added, and the sum is copied to those that want it.
//
// Whether it is worth it, the rank that leads finds out by going both ways, as with copies that are
// loaded or stored, and in the same word (pull_choice.hpp).
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "runtime/executor.hpp"

namespace tutti::runtime {
namespace {

// Of a block. Below, the system's copy costs more by being called than it spares.
constexpr std::size_t kAttachedBytes = std::size_t{16} << 10;
// Of what is added at once, and of all of it together with the sum: it is read right after it was
// written, and must still be in a cache of this core's own.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
constexpr std::size_t kPiecesBytes = std::size_t{512} << 10;

}  // namespace

// The same on all ranks of the call. All must hear the leader's word: there are two of them, or the
// schedule is one in which all meet all.
bool Executor::may_attach(const Call& call, const collectives::Plan& plan) const {
  const Signature& signature = call.signature;
  return transport_attaches_ && plan.settings.direct &&
         signature.collective != Collective::send_recv && !signature.varied &&
         (transport_.size() == 2 || plan.all_meet) &&
         signature.count * size_of(signature.type) >= kAttachedBytes;
}

// From source_pointers_ to all destinations.
void Executor::compute_attached(StepKind kind, bool finish, std::size_t elements) {
  if (kind == StepKind::copy)
    copy_attached(elements * element_bytes_);
  else
    reduce_attached(finish, elements);
}

// What is attached at both ends is copied by way of this rank's own memory, where a program that
// brings it there wants it anyway.
void Executor::copy_attached(std::size_t bytes) {
  for (std::byte* far : far_pointers_.all()) destination_pointers_.add(far);
  const auto own = destination_pointers_.all();
  const std::byte* from = source_pointers_.front();
  std::size_t filled = 0;
  if (attached_sources_.front() != nullptr) {
    TUTTI_ASSERT(!own.empty(), "what is read from another process is kept");
    if (!read_attached(*attached_sources_.front(), own.front(), from, bytes)) return;
    from = own.front();
    filled = 1;
  }
  if (!write_attached(from, 0, bytes)) return;
  if (filled < own.size())
    kernels::copy(from, own.subspan(filled), bytes,
                  streaming_ ? kernels::StoreHint::streaming : kernels::StoreHint::cached);
}

void Executor::reduce_attached(bool finish, std::size_t elements) {
  for (std::byte* far : far_pointers_.all()) destination_pointers_.add(far);
  std::swap(source_pointers_, whole_sources_);
  std::swap(destination_pointers_, whole_destinations_);
  for (std::size_t begin = 0; begin < elements; begin += piece_elements_max_) {
    const std::size_t piece = std::min(piece_elements_max_, elements - begin);
    if (!reduce_piece(finish, begin * element_bytes_, piece)) break;
  }
}

// Of `elements` elements, `before` bytes into everything.
bool Executor::reduce_piece(bool finish, std::size_t before, std::size_t elements) {
  const std::size_t bytes = elements * element_bytes_;
  std::byte* piece = pieces_.get();
  source_pointers_.clear();
  const auto sources = whole_sources_.all();
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (attached_sources_[s] == nullptr) {
      source_pointers_.add(sources[s] + before);
      continue;
    }
    if (!read_attached(*attached_sources_[s], piece, sources[s] + before, bytes)) return false;
    source_pointers_.add(piece);
    piece += piece_elements_max_ * element_bytes_;
  }
  // What is read again to be passed on stays in the caches.
  const auto own = whole_destinations_.all();
  const bool apart = own.empty() || streaming_;
  destination_pointers_.clear();
  if (apart)
    destination_pointers_.add(piece);
  else
    for (std::byte* destination : own) destination_pointers_.add(destination + before);
  store(StepKind::reduce, finish, elements, kernels::StoreHint::cached);
  const std::byte* const sum = destination_pointers_.front();
  if (!write_attached(sum, before, bytes)) return false;
  if (!apart || own.empty()) return true;
  destination_pointers_.clear();
  for (std::byte* destination : own) destination_pointers_.add(destination + before);
  kernels::copy(sum, destination_pointers_.all(), bytes, kernels::StoreHint::streaming);
  return true;
}

// Places for what is read from others, and for the sum.
Status Executor::prepare_pieces() {
  const std::size_t places = program_->operands_max();
  const std::size_t bytes = std::min(kPieceBytes, kPiecesBytes / places);
  piece_elements_max_ = std::max<std::size_t>(bytes / element_bytes_, 1);
  const std::size_t needed = places * piece_elements_max_ * element_bytes_;
  if (needed <= pieces_bytes_) return Status();
  pieces_.reset(static_cast<std::byte*>(std::malloc(needed)));
  pieces_bytes_ = pieces_ == nullptr ? 0 : needed;
  if (pieces_ != nullptr) return Status();
  return Status(StatusCode::system_error, fmt::format("no memory for {} bytes of sums", needed));
}

bool Executor::read_attached(Endpoint& from_whom, std::byte* to, const std::byte* from,
                             std::size_t bytes) {
  return copied(from_whom.read_attached(to, reinterpret_cast<std::uintptr_t>(from), bytes));
}

// To all of them, `before` bytes into each.
bool Executor::write_attached(const std::byte* from, std::size_t before, std::size_t bytes) {
  for (const auto& [endpoint, to] : attached_destinations_)
    if (!copied(
            endpoint->write_attached(reinterpret_cast<std::uintptr_t>(to + before), from, bytes)))
      return false;
  return true;
}

// A peer that has failed may have taken its memory back, or be gone.
bool Executor::copied(const Status& status) {
  if (status.ok()) return true;
  if (!hear_of_failures())
    fail(status.with_context(
        fmt::format("rank {}: {}", transport_.rank(), to_string(call_.signature))));
  return false;
}

}  // namespace tutti::runtime

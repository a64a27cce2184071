// outlet.cc: see outlet.hpp.
#include "transport/net_plugin/outlet.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace tutti::transport::net_plugin {

void Outlet::open(const Handle& handle, std::string hello) {
  handle_ = handle;
  hello_ = std::move(hello);
  opened_ = true;
}

void Outlet::close() {
  if (sender_ == nullptr) return;
  block_.withdraw(device_, sender_);
  device_.close_sender(std::exchange(sender_, nullptr));
}

void Outlet::lose(const Status& status) { why_ = status.message(); }

bool Outlet::try_connect() {
  if (const Status status = device_.connect(handle_, sender_); !status.ok()) {
    lose(status);
    return true;
  }
  if (sender_ == nullptr) return false;
  const Status made =
      block_.make(device_, sender_, frames_ * slot_bytes_ + kControls * kControlBytes);
  if (!made.ok()) {
    lose(made);
    return true;
  }
  slots_.resize(frames_ + kControls);
  say({RecordKind::hello, 0, 0}, hello_);
  return true;
}

std::byte* Outlet::memory_of(std::size_t slot) {
  if (slot < frames_) return block_.at(slot * slot_bytes_);
  return block_.at(frames_ * slot_bytes_ + (slot - frames_) * kControlBytes);
}

std::span<std::byte> Outlet::reserve(std::size_t bytes) {
  if (slots_.empty() || lost() || sent_ - credit_ >= frames_) return {};
  const std::size_t slot = sent_ % frames_;
  if (slots_[slot].busy) land();
  if (slots_[slot].busy) return {};
  return {memory_of(slot) + kHeaderBytes, bytes};
}

void Outlet::commit(std::uint32_t tag, std::size_t bytes, std::uint64_t released) {
  const std::size_t slot = sent_ % frames_;
  TUTTI_ASSERT(!slots_.empty() && !slots_[slot].busy, "commit() without room");
  sent_ += 1;
  fill(slot, {RecordKind::frame, tag, released}, bytes);
}

bool Outlet::say(const RecordHeader& header, std::string_view payload) {
  if (slots_.empty() || lost()) return false;
  const auto controls = slots_.begin() + static_cast<std::ptrdiff_t>(frames_);
  const auto found =
      std::find_if(controls, slots_.end(), [](const Slot& slot) { return !slot.busy; });
  if (found == slots_.end()) return false;
  const auto slot = static_cast<std::size_t>(found - slots_.begin());
  std::copy(payload.begin(), payload.end(),
            reinterpret_cast<char*>(memory_of(slot) + kHeaderBytes));
  fill(slot, header, payload.size());
  return true;
}

void Outlet::fill(std::size_t slot, const RecordHeader& header, std::size_t bytes) {
  write_header(memory_of(slot), header);
  const bool counts = header.kind == RecordKind::frame || header.kind == RecordKind::news;
  slots_[slot] = {true, counts, kHeaderBytes + bytes, nullptr};
  unsent_ += counts ? 1 : 0;
  waiting_.push_back(slot);
  push();
}

// Many plugins move a message only while they are asked about it, and who fills the last record may
// not come back soon; one that has no request to give often has one the next time.
void Outlet::push() {
  constexpr int kTries = 2;
  for (int tries = 0; tries < kTries && !idle() && !lost(); ++tries) {
    post();
    land();
  }
}

bool Outlet::credit(std::uint64_t released) {
  if (released > sent_) return false;
  credit_ = std::max(credit_, released);
  return true;
}

// Offers what waits to the plugin, the oldest first.
bool Outlet::post() {
  bool moved = false;
  while (!waiting_.empty() && flying_.size() < abi::kRequestsMax && !lost()) {
    const std::size_t slot = waiting_.front();
    const Status status = device_.send(sender_, memory_of(slot), slots_[slot].bytes,
                                       block_.registration(), slots_[slot].request);
    if (!status.ok()) lose(status);
    if (!status.ok() || slots_[slot].request == nullptr) break;
    waiting_.pop_front();
    flying_.push_back(slot);
    moved = true;
  }
  return moved;
}

// Frees the slots of what has left.
bool Outlet::land() {
  bool moved = false;
  while (!flying_.empty() && !lost()) {
    Slot& slot = slots_[flying_.front()];
    bool done = false;
    std::size_t bytes = 0;
    const Status status = device_.test(slot.request, slot.bytes, done, bytes);
    if (!status.ok()) lose(status);
    if (!status.ok() || !done) break;
    unsent_ -= slot.counts ? 1 : 0;
    slot = {};
    flying_.pop_front();
    moved = true;
  }
  return moved;
}

bool Outlet::move() {
  if (!opened_ || lost()) return false;
  if (sender_ == nullptr) return try_connect();
  const bool landed = land();
  const bool posted = post();
  return (posted && land()) || posted || landed;
}

}  // namespace tutti::transport::net_plugin

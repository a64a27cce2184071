// inlet.cc: see inlet.hpp.
#include "transport/net_plugin/inlet.hpp"

#include <utility>

#include "base/try.hpp"

namespace tutti::transport::net_plugin {

Inlet::~Inlet() {
  close();
  stop_listening();
}

void Inlet::close() {
  if (receiver_ == nullptr) return;
  block_.withdraw(device_, receiver_);
  device_.close_receiver(std::exchange(receiver_, nullptr));
  posted_.clear();
  empty_.clear();
}

void Inlet::stop_listening() {
  if (listener_ != nullptr) device_.close_listener(std::exchange(listener_, nullptr));
}

void Inlet::lose(const Status& status) {
  why_ = status.message();
  corrupt_ = status.code() == StatusCode::corrupt_data;
}

Result<Handle> Inlet::listen() {
  Handle handle;
  TUTTI_TRY(device_.listen(handle, listener_));
  return handle;
}

bool Inlet::accept() {
  if (receiver_ != nullptr || listener_ == nullptr || lost()) return false;
  Status status = device_.accept(listener_, receiver_);
  if (status.ok() && receiver_ == nullptr) return false;
  if (status.ok()) status = block_.make(device_, receiver_, slots_.size() * slot_bytes_);
  if (!status.ok()) {
    close();  // that is our trouble, and nobody's who should be turned away
    lose(status);
    return true;
  }
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) empty_.push_back(slot);
  post();
  return true;
}

void Inlet::turn_away() {
  close();
  why_.clear();
  corrupt_ = false;
}

bool Inlet::post() {
  bool moved = false;
  while (receiver_ != nullptr && !empty_.empty() && !lost()) {
    const std::size_t slot = empty_.front();
    const Status status = device_.receive(receiver_, block_.at(slot * slot_bytes_), slot_bytes_,
                                          block_.registration(), slots_[slot]);
    if (!status.ok()) lose(status);
    if (!status.ok() || slots_[slot] == nullptr) break;
    empty_.pop_front();
    posted_.push_back(slot);
    moved = true;
  }
  return moved;
}

std::optional<Record> Inlet::next() {
  if (posted_.empty()) return std::nullopt;
  const std::size_t slot = posted_.front();
  bool done = false;
  std::size_t bytes = 0;
  Status status = device_.test(slots_[slot], slot_bytes_, done, bytes);
  if (status.ok() && !done) return std::nullopt;
  if (status.ok() && bytes < kHeaderBytes)
    status = Status(StatusCode::corrupt_data, "a message without a header");
  if (!status.ok()) {
    lose(status);
    posted_.clear();
    return std::nullopt;
  }
  posted_.pop_front();
  std::byte* const at = block_.at(slot * slot_bytes_);
  return Record{slot, read_header(at), {at + kHeaderBytes, bytes - kHeaderBytes}};
}

}  // namespace tutti::transport::net_plugin

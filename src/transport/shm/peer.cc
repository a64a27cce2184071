// peer.cc: what is said on the sockets between two ranks, and how it is checked.
#include "transport/shm/peer.hpp"

#include <fmt/format.h>

#include "base/try.hpp"
#include "transport/shm/remap.hpp"

namespace tutti::transport::shm {

std::string Peer::name() const { return fmt::format("rank {} (pid {})", rank_, address_.pid); }

void Peer::hang_up() {
  outgoing_.close();
  incoming_.close();
  process_.close();
  said_hello_ = false;
}

Result<bool> Peer::connect() {
  if (!outgoing_.open()) {
    Result<Descriptor> socket = connect_to(address_.token);
    TUTTI_TRY(socket);
    if (!socket->open()) return false;
    if (!is_process(address_, self_->address, process_number_behind(*socket)))
      return Status(StatusCode::peer_lost, "another process listens in its place", rank_);
    outgoing_ = std::move(socket).value();
    if (!process_.open()) process_ = process_behind(outgoing_);
  }
  if (said_hello_) return true;
  Message hello{
      .kind = MessageKind::hello, .from = self_->rank, .context = self_->context, .to = rank_};
  hello.proof = prove(hello, address_.token, self_->secret);
  Result<bool> sent = send_message(outgoing_, hello);
  TUTTI_TRY(sent);
  said_hello_ = *sent;
  return said_hello_;
}

Result<bool> Peer::send(Message message, int file) {
  Result<bool> ready = connect();
  TUTTI_TRY(ready);
  if (!*ready) return false;
  message.from = self_->rank;
  message.context = self_->context;
  Result<bool> sent = send_message(outgoing_, message, file);
  if (sent.ok() && *sent) self_->board.announce_mail(rank_);
  return sent;
}

Result<bool> Peer::send_queue(int channel, const Descriptor& file) {
  return send({.kind = MessageKind::queue, .channel = channel}, file.number());
}

MemoryReference Peer::export_memory(const void* memory, std::size_t bytes, bool in_place) {
  std::optional<SharedBlock> block = find_shared(memory, bytes);
  if (!block && in_place && remap(memory, bytes, Insistence::patient).ok())
    block = find_shared(memory, bytes);
  if (!block) return {};
  if (exported_.count(block->region) == 0) {
    const Message message{.kind = block->sparse ? MessageKind::sparse_region : MessageKind::region,
                          .bytes = block->bytes,
                          .region = block->region};
    const Result<bool> sent = send(message, block->file);
    // Whatever stands in the way, frames can do without; a dead peer is noticed elsewhere.
    if (!sent.ok() || !*sent) return {};
    exported_.insert(block->region);
  }
  const auto offset = static_cast<const std::byte*>(memory) - block->base;
  return {block->region, static_cast<std::uint64_t>(offset)};
}

std::byte* Peer::import_memory(const MemoryReference& reference, std::size_t bytes) {
  if (!reference.addressable()) return nullptr;
  if (std::byte* memory = find_imported(reference, bytes)) return memory;
  // It was sent before the reference was; a failure shows up at the next poll.
  if (!receive().ok()) return nullptr;
  return find_imported(reference, bytes);
}

std::byte* Peer::find_imported(const MemoryReference& reference, std::size_t bytes) {
  if (const auto sparse = sparse_.find(reference.region); sparse != sparse_.end()) {
    const std::uint64_t unmapped = sparse->second.unmapped();
    std::byte* const memory = sparse->second.at(reference.offset, bytes);
    import_generation_ += sparse->second.unmapped() - unmapped;
    return memory;
  }
  const auto found = imported_.find(reference.region);
  if (found == imported_.end()) return nullptr;
  const Mapping& memory = found->second;
  if (reference.offset > memory.bytes() || bytes > memory.bytes() - reference.offset)
    return nullptr;
  return memory.base() + reference.offset;
}

void Peer::withdraw_freed_regions() {
  for (auto region = exported_.begin(); region != exported_.end();) {
    bool withdrawn = false;
    if (!shared_region_exists(*region)) {
      const Result<bool> sent = send({.kind = MessageKind::region_gone, .region = *region}, -1);
      withdrawn = sent.ok() && *sent;
    }
    region = withdrawn ? exported_.erase(region) : std::next(region);
  }
}

bool Peer::adopt(Descriptor socket) {
  if (incoming_.open()) return false;
  incoming_ = std::move(socket);
  if (!process_.open()) process_ = process_behind(incoming_);
  return true;
}

Status Peer::receive() {
  while (incoming_.open()) {
    Received received = receive_message(incoming_);
    // A hang-up is the transport's to judge, when it finds the socket broken.
    if (received.kind == Received::Kind::nothing || received.kind == Received::Kind::hang_up) break;
    TUTTI_TRY(take(std::move(received)).with_context(name()));
  }
  return {};
}

Status Peer::take(Received received) {
  const Message& message = received.message;
  const bool sound = received.kind == Received::Kind::message && message.from == rank_ &&
                     message.context == self_->context;
  if (sound && message.kind == MessageKind::queue && received.file.open())
    return take_queue(message, received.file);
  if (sound && message.kind == MessageKind::region && received.file.open())
    return take_region(message, received.file);
  if (sound && message.kind == MessageKind::sparse_region && received.file.open())
    return take_sparse_region(message, std::move(received.file));
  if (sound && message.kind == MessageKind::region_gone) {
    imported_.erase(message.region);
    sparse_.erase(message.region);
    ++import_generation_;
    return {};
  }
  return Status(StatusCode::corrupt_data, "sent a message that makes no sense");
}

Status Peer::take_queue(const Message& message, const Descriptor& file) {
  if (message.channel >= self_->channel_count)
    return Status(StatusCode::corrupt_data, fmt::format("sent a queue for channel {} of {}",
                                                        message.channel, self_->channel_count));
  Result<Mapping> memory = map_received(file.number(), self_->layout.bytes(), Pages::when_touched);
  TUTTI_TRY(memory);
  if (!fifo::describes(memory->base(), self_->layout))
    return Status(StatusCode::mismatch,
                  "sent a queue of another layout: frame and queue sizes "
                  "must be the same on all ranks");
  arrived_.push_back({message.channel, std::move(memory).value()});
  return {};
}

Status Peer::check_new(std::uint32_t region) const {
  if (region != 0 && imported_.count(region) == 0 && sparse_.count(region) == 0) return {};
  return Status(StatusCode::corrupt_data, fmt::format("sent region {} twice", region));
}

Status Peer::take_region(const Message& message, const Descriptor& file) {
  TUTTI_TRY(check_new(message.region));
  // The owner's pages exist already, which makes asking for all of them cheap.
  Result<Mapping> memory = map_received(file.number(), message.bytes, Pages::at_once);
  TUTTI_TRY(memory);
  imported_.emplace(message.region, std::move(memory).value());
  return {};
}

Status Peer::take_sparse_region(const Message& message, Descriptor file) {
  TUTTI_TRY(check_new(message.region));
  TUTTI_TRY(check_received(file.number(), message.bytes));
  sparse_.emplace(message.region, SparseFile(std::move(file), message.bytes));
  return {};
}

}  // namespace tutti::transport::shm

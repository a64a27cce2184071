// The life of a call: set up, meet the peers, move every channel forward until all is complete.
// What one step does is in executor_steps.cc.
#include "runtime/executor.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/assert.hpp"
#include "base/try.hpp"
#include "runtime/frame_tag.hpp"

namespace tutti::runtime {
namespace {

using collectives::LoweredOperand;
using collectives::LoweredProgram;
using collectives::LoweredStep;

// Slices of a channel in flight. More would only help chains deeper than this.
constexpr std::size_t kWindowMax = 8;

std::size_t index(int value) { return static_cast<std::size_t>(value); }

// Which of a rank's own buffers peers touch when messages travel direct: bit per Buffer.
std::uint8_t touched_by(const LoweredProgram& program, int peer) {
  unsigned bits = 0;
  auto note = [&](const std::vector<LoweredOperand>& operands) {
    for (const LoweredOperand& operand : operands)
      if (operand.kind == Operand::Kind::message && operand.mine && operand.stream == peer)
        bits |= 1U << static_cast<unsigned>(operand.buffer);
  };
  for (const LoweredStep& step : program.steps) {
    note(step.sources);
    note(step.destinations);
  }
  return static_cast<std::uint8_t>(bits);
}

}  // namespace

Executor::Executor(Transport& transport, const ExecutorOptions& options)
    : transport_(transport),
      options_(options),
      streams_(index(transport.size()) * index(transport.channel_count())) {}

Executor::~Executor() {
  if (scratch_is_shareable_)
    transport_.release_shareable(scratch_);
  else
    std::free(scratch_);
}

Status Executor::start(const Call& call, const collectives::Plan& plan) {
  TUTTI_ASSERT(done(), "one call at a time");
  if (!status_.ok()) return status_;
  call_ = call;
  plan_ = &plan;
  program_ = plan.program.get();
  element_bytes_ = size_of(call.signature.type);
  const int channels = plan.settings.channels;
  TUTTI_ASSERT(channels >= 1 && channels <= transport_.channel_count(),
               "the plan uses channels that exist");
  const std::size_t slice_bytes = std::min(plan.settings.slice_bytes, transport_.frame_bytes_max());
  const std::size_t slices = collectives::slices_needed(program_->shape, call.signature.count,
                                                        element_bytes_, channels, slice_bytes);
  if (slices == 0)
    return Status(StatusCode::unsupported,
                  fmt::format("algorithm {}: slices of {} bytes cannot hold {} chunks of {}; use "
                              "larger slices (TUTTI_SLICE_BYTES) or another algorithm",
                              plan.algorithm, slice_bytes, program_->shape.message_chunks_max,
                              to_string(call.signature.type)));
  geometry_ = collectives::Geometry(call.signature.count, program_->shape.chunks, channels, slices);
  window_ = std::min(slices, kWindowMax);
  streaming_ =
      call.signature.count * element_bytes_ * index(block_count(program_->shape, Buffer::output)) >=
      options_.streaming_bytes;
  TUTTI_TRY(prepare_scratch());
  TUTTI_TRY(connect());
  channels_.resize(index(channels));
  for (Channel& channel : channels_) {
    channel.first_slice = 0;
    channel.phases.assign(window_ * program_->steps.size(), Phase::waiting);
    channel.first.assign(window_, 0);
    channel.left.assign(window_, static_cast<std::int32_t>(program_->steps.size()));
  }
  finished_ = false;
  return Status();
}

Status Executor::prepare_scratch() {
  const std::size_t needed =
      index(program_->shape.scratch_blocks) * call_.signature.count * element_bytes_;
  if (needed <= scratch_bytes_) return Status();
  if (scratch_is_shareable_)
    transport_.release_shareable(scratch_);
  else
    std::free(scratch_);
  scratch_ = static_cast<std::byte*>(transport_.allocate_shareable(needed));
  scratch_is_shareable_ = scratch_ != nullptr;
  if (scratch_ == nullptr) scratch_ = static_cast<std::byte*>(std::malloc(needed));
  scratch_bytes_ = scratch_ == nullptr ? 0 : needed;
  if (scratch_ != nullptr) return Status();
  return Status(StatusCode::system_error, fmt::format("no memory for {} bytes of scratch", needed));
}

// Gets the connections of all peers of the program and notes where their streams stand.
Status Executor::connect() {
  const int peers = static_cast<int>(program_->peers.size());
  peers_.resize(index(peers));
  for (Peer& peer : peers_) peer.reset();
  call_streams_.clear();
  for (int channel = 0; channel < plan_->settings.channels; ++channel) {
    for (int peer = 0; peer < peers; ++peer) {
      const Rank rank = program_->peers[index(peer)];
      Stream& s = streams_[index(rank) * index(transport_.channel_count()) + index(channel)];
      if (s.endpoint == nullptr) {
        Result<Endpoint*> endpoint = transport_.endpoint(rank, channel);
        if (!endpoint.ok()) {
          fail(endpoint.status());
          return status_;
        }
        s.endpoint = *endpoint;
      }
      s.sent = s.taken = s.granted = 0;
      call_streams_.push_back(&s);
    }
  }
  for (int peer = 0; peer < peers; ++peer) {
    Peer& p = peers_[index(peer)];
    p.arrival_expected = plan_->settings.direct || program_->receives[index(peer)] > 0;
    p.taken_per_slice = index(program_->receives[index(peer)]);
  }
  return Status();
}

void Executor::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Executor::Stream& Executor::stream(int channel, int peer) {
  return *call_streams_[index(channel) * program_->peers.size() + index(peer)];
}

const Executor::Stream& Executor::stream(int channel, int peer) const {
  return *call_streams_[index(channel) * program_->peers.size() + index(peer)];
}

const std::byte* Executor::own_memory(Buffer buffer) const {
  if (buffer == Buffer::input) return call_.input;
  return buffer == Buffer::output ? call_.output : scratch_;
}

void Executor::export_memory(int peer, Arrival& arrival) {
  Peer& p = peers_[index(peer)];
  const std::uint8_t touched = touched_by(*program_, peer);
  for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    const std::size_t bytes =
        index(block_count(program_->shape, buffer)) * call_.signature.count * element_bytes_;
    const unsigned bit = 1U << static_cast<unsigned>(buffer);
    if ((touched & bit) == 0 || bytes == 0) continue;
    const MemoryReference reference =
        stream(0, peer).endpoint->export_memory(own_memory(buffer), bytes);
    arrival.memory[static_cast<std::size_t>(buffer)] = reference;
    if (reference.addressable()) p.mine_addressable |= static_cast<std::uint8_t>(bit);
  }
}

// The record in a frame of its own; small staged messages carry it with their data instead.
bool Executor::send_arrival(int peer) {
  Peer& p = peers_[index(peer)];
  if (p.arrival_sent) return false;
  Endpoint& endpoint = *stream(0, peer).endpoint;
  const std::size_t bytes = encoded_bytes(call_.signature);
  const std::span<std::byte> room = endpoint.reserve(bytes);
  if (room.data() == nullptr) return false;
  Arrival arrival;
  arrival.signature = call_.signature;
  if (call_.signature.direct) export_memory(peer, arrival);
  encode(arrival, room);
  endpoint.commit(static_cast<std::uint32_t>(FrameTag::arrival), bytes);
  p.arrival_sent = true;
  return true;
}

// Once both records are known: which messages from the peer are pushed into our memory.
void Executor::settle(int peer) {
  Peer& p = peers_[index(peer)];
  p.settled = true;
  if (!call_.signature.direct) return;
  p.place.assign(index(program_->receives[index(peer)]), 0);
  p.pushed_per_slice = p.taken_per_slice = 0;
  for (const LoweredStep& step : program_->steps) {
    for (const LoweredOperand& source : step.sources) {
      if (source.kind != Operand::Kind::message || source.stream != peer) continue;
      const bool pushed = source.direct == collectives::DirectForm::push && direct(source);
      std::uint64_t& count = pushed ? p.pushed_per_slice : p.taken_per_slice;
      p.place[index(source.ordinal)] = static_cast<std::uint32_t>(count++);
    }
  }
}

bool Executor::take_arrivals() {
  bool moved = false;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (call_.signature.direct) moved |= send_arrival(peer);
    const Peer& p = peers_[index(peer)];
    if (p.arrival_expected && !p.arrival_seen) moved |= take_arrival(peer);
    const bool exchanged = p.arrival_seen && (p.arrival_sent || !call_.signature.direct);
    if (exchanged && !p.settled) settle(peer);
  }
  return moved;
}

bool Executor::take_arrival(int peer) {
  Endpoint& endpoint = *stream(0, peer).endpoint;
  Frame frame;
  if (!endpoint.peek(frame)) return false;
  const auto tag = static_cast<FrameTag>(frame.tag);
  if (tag != FrameTag::arrival && tag != FrameTag::arrival_with_data) {
    fail(Status(StatusCode::mismatch,
                fmt::format("rank {}: {}: rank {} sent data (tag {}) where its arrival was due",
                            transport_.rank(), to_string(call_.signature),
                            program_->peers[index(peer)], frame.tag)));
    return false;
  }
  if (!accept_arrival(peer, frame)) return false;
  // A record that came with data stays at the head of the queue for the step that takes the data.
  if (tag == FrameTag::arrival) endpoint.release();
  return true;
}

bool Executor::accept_arrival(int peer, const Frame& frame) {
  const Rank rank = program_->peers[index(peer)];
  const std::optional<Arrival> arrival = decode_arrival(frame.payload);
  if (!arrival) {
    fail(Status(StatusCode::corrupt_data,
                fmt::format("rank {} sent an arrival record of {} bytes that makes no sense", rank,
                            frame.payload.size())));
    return false;
  }
  if (arrival->signature != call_.signature) {
    send_arrival(peer);  // so that the peer learns it too, and does not wait for us
    fail(Status(StatusCode::mismatch,
                fmt::format("ranks made different calls: rank {} called {}, rank {} called {}",
                            transport_.rank(), to_string(call_.signature), rank,
                            to_string(arrival->signature))));
    return false;
  }
  Peer& p = peers_[index(peer)];
  p.arrival_seen = true;
  if (!call_.signature.direct) return true;
  for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    const auto b = static_cast<std::size_t>(buffer);
    const MemoryReference& reference = arrival->memory[b];
    if (!reference.addressable()) continue;
    const std::size_t bytes =
        index(block_count(program_->shape, buffer)) * call_.signature.count * element_bytes_;
    p.memory[b] = stream(0, peer).endpoint->import_memory(reference, bytes);
    if (p.memory[b] == nullptr) {
      // The peer believes that we can; going on would hang.
      fail(Status(
          StatusCode::system_error,
          fmt::format("rank {} cannot map the {} of rank {} (region {}, offset {}, {} bytes)",
                      transport_.rank(), to_string(buffer), rank, reference.region,
                      reference.offset, bytes)));
      return false;
    }
    p.theirs_addressable |= static_cast<std::uint8_t>(1U << b);
  }
  return true;
}

bool Executor::advance() {
  if (done()) return false;
  bool moved = take_arrivals();
  bool complete = true;
  for (int channel = 0; channel < static_cast<int>(channels_.size()) && status_.ok(); ++channel) {
    moved |= advance_channel(channel);
    complete &= channels_[index(channel)].first_slice == geometry_.slices();
  }
  for (const Peer& peer : peers_) complete &= peer.arrival_seen || !peer.arrival_expected;
  if (complete && status_.ok()) finish();
  return moved;
}

void Executor::finish() {
  const std::size_t peers = program_->peers.size();
  for (std::size_t i = 0; i < call_streams_.size(); ++i) {
    call_streams_[i]->sent_before += geometry_.slices() * index(program_->sends[i % peers]);
    call_streams_[i]->received_before += geometry_.slices() * index(program_->receives[i % peers]);
  }
  finished_ = true;
}

bool Executor::advance_channel(int channel) {
  Channel& c = channels_[index(channel)];
  bool moved = false;
  const std::size_t end = std::min(c.first_slice + window_, geometry_.slices());
  for (std::size_t slice = c.first_slice; slice < end && status_.ok(); ++slice)
    moved |= advance_slice(channel, slice);
  while (c.first_slice < geometry_.slices() && c.left[c.first_slice % window_] == 0) {
    // The slot now serves the slice that enters the window.
    const std::size_t slot = c.first_slice % window_;
    const auto steps = program_->steps.size();
    std::fill_n(c.phases.begin() + static_cast<std::ptrdiff_t>(slot * steps), steps,
                Phase::waiting);
    c.first[slot] = 0;
    c.left[slot] = static_cast<std::int32_t>(steps);
    ++c.first_slice;
    moved = true;
  }
  return moved;
}

bool Executor::advance_slice(int channel, std::size_t slice) {
  Channel& c = channels_[index(channel)];
  const std::size_t slot = slice % window_;
  const auto steps = static_cast<std::int32_t>(program_->steps.size());
  Phase* phases = c.phases.data() + slot * index(steps);
  bool moved = false;
  for (std::int32_t s = c.first[slot]; s < steps; ++s) {
    Phase& phase = phases[s];
    if (phase != Phase::complete) {
      Attempt attempt{channel, slice, &program_->steps[index(s)], phases, &phase};
      moved |= try_step(attempt);
      if (!status_.ok()) return moved;
      if (phase == Phase::complete) --c.left[slot];
    }
    if (phase == Phase::complete && s == c.first[slot]) ++c.first[slot];
  }
  return moved;
}

std::string Executor::waits_for() const {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].arrival_expected && !peers_[peer].arrival_seen)
      return fmt::format("rank {} to make the same call", program_->peers[peer]);
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    const Channel& channel = channels_[c];
    if (channel.first_slice >= geometry_.slices()) continue;
    const auto& step = program_->steps[index(channel.first[channel.first_slice % window_])];
    for (const LoweredOperand& source : step.sources)
      if (source.kind == Operand::Kind::message)
        return fmt::format("data from rank {}", program_->peers[index(source.stream)]);
    for (const LoweredOperand& destination : step.destinations)
      if (destination.kind == Operand::Kind::message)
        return fmt::format("rank {} to take data", program_->peers[index(destination.stream)]);
  }
  return "nobody";
}

}  // namespace tutti::runtime

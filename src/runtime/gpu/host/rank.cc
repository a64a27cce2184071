// rank.cc: one rank of a device world (world.hpp): from what is asked for to a launch.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/try.hpp"
#include "runtime/gpu/host/failures.hpp"
#include "runtime/gpu/host/world.hpp"
#include "runtime/request.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::chrono::microseconds kLook{50};  // between looks at a device that works

// Of what shares scratch memory.
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::byte* as_bytes(const void* memory) {
  return static_cast<std::byte*>(const_cast<void*>(memory));
}

std::size_t bytes_per_rank(const GpuCall& call) { return call.count * size_of(call.type); }

// To load from what a peer has stored into already would be wrong.
bool is_exchange_in_place(const GpuCall& call) {
  return call.collective == Collective::all_to_all && call.input == call.output && call.count > 0;
}

// Products of the input with a factor replace it where the result does, too; a part of it is all
// that the result of a reduce_scatter replaces.
bool is_scaled_in_place(const GpuCall& call) {
  return call.has_factor && call.collective != Collective::reduce_scatter &&
         call.input == call.output;
}

// Equal on ranks that make the same call in the same way.
std::uint64_t signature_of(std::uint64_t plan, const GpuCall& call, std::uint64_t way) {
  std::uint64_t hash = plan;
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.type),
        static_cast<std::uint64_t>(call.op) << 1 | (call.has_factor ? 1U : 0U),
        static_cast<std::uint64_t>(call.root), std::uint64_t{call.count}, way}) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

GpuRank::GpuRank(GpuWorld& world, Rank rank, RankMemory memory, std::size_t records)
    : world_(world),
      rank_(rank),
      memory_(std::move(memory)),
      records_(memory_.device(), records, sizeof(DeviceCall)) {}

GpuRank::~GpuRank() {
  if (EventHandle const event = last_event_; event != nullptr) device().destroy_event(event);
  for (std::byte* const memory : allocations_) device().deallocate(memory);
}

Status GpuRank::call(const GpuCall& call, StreamHandle stream) {
  TUTTI_TRY(failure());
  PreparedCall* prepared = find_prepared(call);
  if (prepared == nullptr) {
    TUTTI_TRY(check(call));
    const auto made = call.transfers.empty() ? prepare(call) : prepare_transfers(call);
    TUTTI_TRY(made);
    prepared = *made;
  }
  const auto capture = device().capture_of(stream);
  TUTTI_TRY(capture);
  const bool is_captured = *capture != 0;
  if (!is_captured) TUTTI_TRY(follow(stream));
  for (const CopyBefore& copy : {prepared->copy, prepared->copy_factor})
    if (copy.bytes > 0) TUTTI_TRY(device().copy(copy.to, copy.from, copy.bytes, stream));
  TUTTI_TRY(launch(prepared->launch, stream, is_captured));
  is_in_graphs_ |= is_captured;
  return records_of(call).used(*prepared, stream, is_captured);
}

// Ensures  is_idle() knows of it before anybody has the driver forget something.
Status GpuRank::launch(const Launch& launch, StreamHandle stream, bool is_captured) {
  std::unique_lock<std::mutex> launching;
  if (world_.regions_ != nullptr) launching = world_.regions_->begin_launch();
  TUTTI_TRY(device().launch(launch, stream));
  return is_captured ? Status() : mark(stream);
}

Status GpuRank::synchronize(StreamHandle stream) {
  TUTTI_TRY(device().synchronize(stream));
  return failure();
}

Status GpuRank::failure() const {
  if (const ErrorRecord error = memory_.error(); error.why != Why::none)
    return world_.explained(status_of(error, rank_));
  if (world_.aborted_.load(std::memory_order_relaxed))
    return Status(StatusCode::aborted, fmt::format("rank {}: the world was aborted", rank_));
  return Status();
}

Result<bool> GpuRank::is_idle() const {
  EventHandle const event = last_event_;
  if (event == nullptr) return true;
  return device().reached_event(event);
}

// Until no kernel of the rank's is left. To wait for all that a device does would break what is
// being captured on any of its streams, so that it is done for graphs only, of which nobody says
// when they are over.
void GpuRank::wait() {
  for (auto idle = is_idle(); idle.ok() && !*idle; idle = is_idle())
    std::this_thread::sleep_for(kLook);
  if (is_in_graphs_) static_cast<void>(device().finish());
}

// As a communicator does, and what a device wants besides.
Status GpuRank::check(const GpuCall& call) const {
  if (!call.transfers.empty()) return check_transfers(call.transfers);
  const auto refuse = [&](const std::string& text) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {}: {}: {}", rank_, to_string(call.collective), text));
  };
  if (call.count > kCountMax) return refuse(fmt::format("{} elements are too many", call.count));
  if (call.has_factor && (!is_reduction(call.collective) || call.op != ReduceOp::sum))
    return refuse("only what is summed has a factor");
  Request request;
  request.collective = call.collective;
  request.input = call.input;
  request.output = call.output;
  request.count = call.count;
  request.type = call.type;
  request.root = call.root;
  request.to = request.from = rank_;  // of send_recv: somebody
  if (is_exchange_in_place(call))     // which becomes one between two buffers
    request.input =
        as_bytes(call.output) + bytes_per_rank(call) * static_cast<std::size_t>(world_.ranks());
  const auto shape = RequestShape::of(request, rank_, world_.ranks());
  TUTTI_TRY(shape);
  TUTTI_TRY(shape->check_buffers(request));
  const std::size_t size = size_of(call.type);
  for (const void* const memory : {call.input, static_cast<const void*>(call.output)})
    if (reinterpret_cast<std::uintptr_t>(memory) % size != 0)
      return refuse(fmt::format("a buffer does not lie at a multiple of {} bytes", size));
  return Status();
}

// What was written down of where its buffers are may have become wrong.
PreparedCall* GpuRank::find_prepared(const GpuCall& call) {
  CallRecords& records = records_of(call);
  PreparedCall* const found = records.find(call);
  if (found == nullptr || world_.regions_ == nullptr) return found;
  const std::uint64_t changes = world_.regions_->changes();
  if (found->as_of == changes) return found;
  const bool holds = std::all_of(
      found->shared.begin(), found->shared.end(),
      [&](const SharedBuffer& buffer) { return share(buffer.memory, buffer.bytes) == buffer.at; });
  if (holds) {
    found->as_of = changes;
    return found;
  }
  records.forget(*found);
  return nullptr;
}

MemoryRef GpuRank::as_it_is(const std::byte* memory) {
  return {kEverywhere, 0, reinterpret_cast<std::uintptr_t>(memory) - kEverywhereBase};
}

MemoryRef GpuRank::share(const std::byte* memory, std::size_t bytes) const {
  if (memory == nullptr) return {};
  if (world_.regions_ != nullptr) return world_.regions_->find(memory, bytes);
  if (!world_.options_.direct) return {};
  if (world_.devices_ > 1 && !device().is_reachable(memory, bytes)) return {};
  return as_it_is(memory);
}

// Of a buffer as any rank has it at most.
std::size_t GpuRank::bytes_of(const GpuCall& call, Buffer buffer) const {
  ScheduleShape plain;
  plain.collective = call.collective;
  plain.ranks = world_.ranks();
  return static_cast<std::size_t>(std::max(1, block_count(plain, buffer))) * bytes_per_rank(call);
}

Result<Regions::Registration> GpuRank::register_memory(const void* memory, std::size_t bytes) {
  if (world_.regions_ == nullptr)
    return world_.why_no_regions_.ok() ? Result<Regions::Registration>(0) : world_.why_no_regions_;
  return world_.regions_->add(as_bytes(memory), bytes);
}

Status GpuRank::deregister_memory(Regions::Registration registration) {
  if (world_.regions_ == nullptr || registration == 0) return Status();
  return world_.regions_->remove(registration, [this] { return !failure().ok(); });
}

bool GpuRank::is_mapped(const void* memory, std::size_t bytes) const {
  return world_.regions_ != nullptr && world_.regions_->is_open(as_bytes(memory), bytes);
}

Result<PreparedCall*> GpuRank::prepare(const GpuCall& call) {
  collectives::PlanQuery query;
  query.collective = call.collective;
  query.count = call.count;
  query.type = call.type;
  query.root = call.root;
  const auto plan = world_.plans_->find(query);
  TUTTI_TRY(plan);
  const auto& programs = plan->programs->programs;
  const ProgramHeader& header = programs[static_cast<std::size_t>(rank_)].header();
  const auto cutting = world_.cut(header, call);
  TUTTI_TRY(cutting);
  const auto program = upload(plan->programs);
  TUTTI_TRY(program);
  DeviceCall content;
  const std::uint64_t as_of = world_.regions_ != nullptr ? world_.regions_->changes() : 0;
  std::array<SharedBuffer, kBufferCount> shared;
  const auto copy = lay_out(call, header, content, shared);
  TUTTI_TRY(copy);
  content.count = call.count;
  content.timeout_ns = static_cast<std::uint64_t>(world_.options_.timeout.count());
  content.element_bytes = static_cast<std::uint32_t>(size_of(call.type));
  content.op = call.op;
  content.protocol = cutting->protocol;
  content.direct = plan->direct && cutting->protocol == Protocol::simple;
  content.channels = cutting->channels;
  const std::uint64_t way = std::uint64_t{cutting->channels} << 2 |
                            (cutting->protocol == Protocol::simple ? 2U : 0U) |
                            (content.direct ? 1U : 0U);
  content.signature = signature_of(plan->hash, call, way);

  Launch launch;
  if (is_reduction(call.collective)) launch.reduces = call.type;
  launch.blocks = cutting->channels;
  launch.threads = static_cast<std::uint32_t>(world_.options_.threads);
  launch.world = memory_.world();
  launch.program = *program;
  const auto made = records_.add(call, std::as_bytes(std::span(&content, 1)), launch, *copy);
  TUTTI_TRY(made);
  (*made)->shared.assign(shared.begin(), shared.end());
  (*made)->as_of = as_of;
  return made;
}

// Where the call's memory lies. What its program takes for the input is the caller's, unless it has
// to be another piece of memory that is filled from there: by a copy, or by the kernel.
Result<CopyBefore> GpuRank::lay_out(const GpuCall& call, const ProgramHeader& program,
                                    DeviceCall& content,
                                    std::array<SharedBuffer, kBufferCount>& shared) {
  const bool copies = is_exchange_in_place(call);
  const bool is_apart = copies || (call.has_factor && !is_scaled_in_place(call));
  const bool has_all =
      call.collective == Collective::all_to_all || call.collective == Collective::reduce_scatter;
  const std::size_t blocks = has_all ? static_cast<std::size_t>(world_.ranks()) : 1;
  const std::size_t input_bytes = blocks * bytes_per_rank(call);
  const std::size_t scratch_bytes = aligned(program.scratch_blocks * bytes_per_rank(call));
  std::byte* input = as_bytes(call.input);
  // As far from a multiple of a vector as the caller's, so that vectors serve for both.
  const std::size_t phase = reinterpret_cast<std::uintptr_t>(input) % kVectorBytes;
  const auto memory = scratch(scratch_bytes + (is_apart ? phase + input_bytes : 0));
  TUTTI_TRY(memory);
  if (is_apart && *memory != nullptr) input = *memory + scratch_bytes + phase;
  content.memory[0] = input;
  content.memory[1] = as_bytes(call.output);
  content.memory[2] = *memory;
  const std::array<std::size_t, kBufferCount> bytes{bytes_of(call, Buffer::input),
                                                    bytes_of(call, Buffer::output), scratch_bytes};
  for (std::size_t b = 0; b < kBufferCount; ++b) {
    content.shared[b] = share(content.memory[b], bytes[b]);
    shared[b] = {content.memory[b], bytes[b], content.shared[b]};
  }
  if (call.has_factor) {
    content.unscaled = as_bytes(call.input);
    content.unscaled_blocks = static_cast<std::uint32_t>(blocks);
    content.factor = call.factor;
  }
  return copies ? CopyBefore{input, as_bytes(call.input), input_bytes} : CopyBefore();
}

Result<const ProgramHeader*> GpuRank::upload(const std::shared_ptr<const WorldPrograms>& programs) {
  if (const auto found = programs_.find(programs.get()); found != programs_.end())
    return found->second.program;
  const auto bytes = programs->programs[static_cast<std::size_t>(rank_)].bytes();
  const auto memory = device().allocate(bytes.size());
  TUTTI_TRY(memory);
  allocations_.push_back(*memory);
  TUTTI_TRY(device().copy_in(*memory, bytes.data(), bytes.size()));
  const auto* const program = reinterpret_cast<const ProgramHeader*>(*memory);
  programs_[programs.get()] = {programs, program};
  return program;
}

// Twice as much as the last time, at least; what there was stays, because calls under way and
// graphs use it. Together that is not more than once again.
Result<std::byte*> GpuRank::scratch(std::size_t bytes) {
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  if (bytes <= scratch_bytes_) return scratch_;
  const std::size_t wanted = std::max(bytes, 2 * scratch_bytes_);
  const auto memory = device().allocate(wanted);
  TUTTI_TRY(memory);
  allocations_.push_back(*memory);
  // What peers cannot have goes through slots.
  if (world_.regions_ != nullptr) static_cast<void>(world_.regions_->add(*memory, wanted));
  scratch_ = *memory;
  scratch_bytes_ = wanted;
  return scratch_;
}

// Behind the rank's last call, on whatever stream that was.
Status GpuRank::follow(StreamHandle stream) {
  EventHandle const event = last_event_;
  if (event == nullptr || last_stream_ == stream) return Status();
  return device().wait_event(stream, event);
}

// At once, and not when the next call needs it: by then the stream may be gone, or be captured.
Status GpuRank::mark(StreamHandle stream) {
  EventHandle event = last_event_;
  if (event == nullptr) {
    const auto made = device().make_event();
    TUTTI_TRY(made);
    event = *made;
  }
  last_stream_ = stream;
  const Status status = device().record(event, stream);
  last_event_ = event;
  return status;
}

}  // namespace tutti::runtime::gpu

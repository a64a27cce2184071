// How one line is measured and checked; see bench.hpp for the rules of timing.
#include "perf/common/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <span>

namespace tutti::perf {
namespace {

constexpr int kUntouched = 0xa5;  // what output holds before a checked call

// Seconds since some fixed moment: of the day, or of work done by this thread.
double seconds(bool cpu_time) {
  std::timespec now{};
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double combine(std::span<const double> times, Average average) {
  switch (average) {
    case Average::rank_zero:
      return times[0];
    case Average::minimum:
      return *std::min_element(times.begin(), times.end());
    case Average::maximum:
      return *std::max_element(times.begin(), times.end());
    case Average::mean:
      break;
  }
  double sum = 0;
  for (const double time : times) sum += time;
  return sum / static_cast<double>(times.size());
}

std::string hexadecimal(const std::byte* element, std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, bytes);  // little endian
  return fmt::format("0x{:0{}x}", bits, 2 * bytes);
}

}  // namespace

Bench::Bench(Communicator& communicator, const Tool& tool, const Options& options, Buffer input,
             Buffer output)
    : communicator_(&communicator),
      tool_(&tool),
      options_(&options),
      input_(std::move(input)),
      output_(std::move(output)) {}

Result<Bench> Bench::make(Communicator& communicator, const Tool& tool, const Options& options) {
  const std::size_t bytes =
      options.max_bytes + static_cast<std::size_t>(options.unalign) * sizeof(double);
  auto input = Buffer::make(bytes, options.buffers);
  if (!input.ok()) return input.status();
  auto output = Buffer::make(bytes, options.buffers);
  if (!output.ok()) return output.status();
  return Bench(communicator, tool, options, std::move(input).value(), std::move(output).value());
}

Shape Bench::shape_of(const Line& line) const {
  const std::size_t element_bytes = size_of(line.type);
  return tool_->shape(line.bytes / element_bytes, element_bytes, communicator_->size());
}

std::size_t Bench::message_bytes(const Line& line) const {
  const Shape shape = shape_of(line);
  return std::max(shape.input, shape.output) * size_of(line.type);
}

Call Bench::place(const Line& line, bool in_place, std::size_t shift) const {
  const Shape shape = shape_of(line);
  const std::size_t element_bytes = size_of(line.type);
  const std::size_t at = shift + static_cast<std::size_t>(options_->unalign) * element_bytes;
  Call call{input_.data() + at,
            output_.data() + at,
            shape.count,
            line.type,
            reduction(line.op, line.type, communicator_->rank()),
            line.root};
  if (in_place) {
    const auto rank = static_cast<std::size_t>(communicator_->rank());
    call.input = output_.data() + at + rank * shape.input_stride * element_bytes;
    call.output = output_.data() + at + rank * shape.output_stride * element_bytes;
  }
  return call;
}

Call Bench::rotate(const Line& line, bool in_place, int operation) const {
  const std::size_t bytes = message_bytes(line);
  const std::size_t places = bytes == 0 ? 1 : std::max<std::size_t>(1, options_->max_bytes / bytes);
  return place(line, in_place, static_cast<std::size_t>(operation) % places * bytes);
}

Pattern Bench::next_pattern(const Line& line) {
  const std::uint64_t seed = ++patterns_made_;
  return is_reduction(tool_->collective)
             ? Pattern::reduced(line.type, line.op, communicator_->size(), seed)
             : Pattern::moved(line.type, seed);
}

Status Bench::warm_up(const Line& line) {
  // All of the input, because timed calls rotate through it: numbers that other types left behind
  // may be denormal and slow.
  const std::size_t elements = input_.size() / size_of(line.type);
  next_pattern(line).fill(input_.data(), communicator_->rank(), 0, elements);
  std::memcpy(output_.data(), input_.data(), output_.size());
  for (std::size_t bytes = options_->min_bytes; options_->warmup > 0;) {
    Line step = line;
    step.bytes = std::min(bytes, options_->max_bytes);
    for (int i = 0; i < options_->warmup; ++i) {
      const Status status = tool_->call(*communicator_, place(step, false, 0));
      if (!status.ok()) return explained(status, step);
    }
    if (bytes >= options_->max_bytes) break;
    bytes = std::max<std::size_t>(2 * bytes, 1);
  }
  return {};
}

Result<Row> Bench::measure(const Line& line) {
  Row row;
  row.bytes = message_bytes(line);
  row.count = shape_of(line).count;
  row.type = to_string(line.type);
  if (is_reduction(tool_->collective)) row.op = to_string(line.op);
  if (has_root(tool_->collective)) row.root = line.root;
  if (options_->floor) {
    const auto floor = floor_us(line);
    if (!floor.ok()) return explained(floor.status(), line);
    row.floor_us = *floor;
  }
  auto out_of_place = measure_half(line, false);
  if (!out_of_place.ok()) return out_of_place.status();
  row.out_of_place = std::move(out_of_place).value();
  if (tool_->in_place) {
    auto in_place = measure_half(line, true);
    if (!in_place.ok()) return in_place.status();
    row.in_place = std::move(in_place).value();
  }
  if (options_->timestamps) row.time_of_day = time_of_day();
  return row;
}

// Of all_to_all_v the bound of blocks of the average size; send_recv goes to the next rank.
Result<double> Bench::floor_us(const Line& line) const {
  const Shape shape = shape_of(line);
  const auto ranks = static_cast<std::size_t>(communicator_->size());
  const bool blocks = tool_->collective == Collective::all_to_all;
  const bool shifts = tool_->collective == Collective::send_recv && ranks > 1;
  const auto plan =
      communicator_->explain(tool_->collective, blocks ? shape.input / ranks : shape.count,
                             line.type, shifts ? 1 : line.root);
  if (!plan.ok()) return plan.status();
  return plan->lower_bound_us;
}

Result<Half> Bench::measure_half(const Line& line, bool in_place) {
  const auto times = time_iterations(line, in_place);
  if (!times.ok()) return explained(times.status(), line);
  Half half;
  if (Status status = gather_times(*times, half); !status.ok()) return explained(status, line);
  const int ranks = communicator_->size();
  const double counted = tool_->algbw_factor == nullptr ? 1 : tool_->algbw_factor(ranks);
  const double gigabytes = static_cast<double>(message_bytes(line)) * 1e-9 * counted;
  half.algbw = half.time_us > 0 ? gigabytes / (half.time_us * 1e-6) : 0;
  half.busbw = half.algbw * tool_->busbw_factor(ranks);
  for (int i = 0; i < options_->checks && half.wrong.value_or(0) == 0; ++i) {
    const auto wrong = check(line, in_place);
    if (!wrong.ok()) return explained(wrong.status(), line);
    half.wrong = *wrong;
  }
  return half;
}

Result<Bench::Times> Bench::time_iterations(const Line& line, bool in_place) {
  const bool barriers = options_->blocking == Blocking::every_iteration;
  const bool single = options_->per_iteration || barriers;
  Times times;
  const Call first = place(line, in_place, 0);
  if (in_place) restore_output(line);
  if (Status status = tool_->call(*communicator_, first); !status.ok()) return status;
  if (Status status = communicator_->barrier(); !status.ok()) return status;
  const double begin = seconds(options_->cpu_time);
  double within = 0;  // the sum of single iterations
  for (int i = 0; i < options_->iterations; ++i) {
    const double before = single ? seconds(options_->cpu_time) : 0;
    if (Status status = run_iteration(line, in_place, i); !status.ok()) return status;
    if (!single) continue;
    const double spent = seconds(options_->cpu_time) - before;
    within += spent;
    if (options_->per_iteration) times.iterations_s.push_back(spent / options_->aggregated);
    if (!barriers) continue;
    if (Status status = communicator_->barrier(); !status.ok()) return status;
  }
  const double total = barriers ? within : seconds(options_->cpu_time) - begin;
  times.mean_s = total / options_->iterations / options_->aggregated;
  return times;
}

// warm_up() filled the input; in place it would be what earlier operations left behind, which may
// be infinite. As far as iterations will come.
void Bench::restore_output(const Line& line) {
  const auto operations = static_cast<std::size_t>(options_->iterations) *
                          static_cast<std::size_t>(options_->aggregated);
  const std::size_t slack = output_.size() - options_->max_bytes;
  const std::size_t bytes = message_bytes(line);
  const std::size_t used = bytes == 0 || operations < options_->max_bytes / bytes
                               ? operations * bytes
                               : options_->max_bytes;
  std::memcpy(output_.data(), input_.data(), std::min(output_.size(), used + slack));
}

Status Bench::run_iteration(const Line& line, bool in_place, int iteration) {
  const int first = iteration * options_->aggregated;
  if (options_->blocking == Blocking::none && options_->aggregated > 1) {
    std::vector<Work> works;
    for (int i = 0; i < options_->aggregated; ++i) {
      auto work = tool_->start(*communicator_, rotate(line, in_place, first + i));
      if (!work.ok()) return work.status();
      works.push_back(std::move(work).value());
    }
    for (Work& work : works)
      if (Status status = work.wait(); !status.ok()) return status;
    return {};
  }
  for (int i = 0; i < options_->aggregated; ++i) {
    Status status = tool_->call(*communicator_, rotate(line, in_place, first + i));
    if (status.ok() && options_->blocking == Blocking::every_operation)
      status = communicator_->barrier();
    if (!status.ok()) return status;
  }
  return {};
}

Status Bench::gather_times(const Times& own, Half& half) {
  const std::size_t iterations = own.iterations_s.size();
  std::vector<double> mine = own.iterations_s;
  mine.push_back(own.mean_s);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(communicator_->size()));
  Status status = communicator_->all_gather(std::span<const double>(mine), std::span<double>(all));
  if (!status.ok()) return status.with_context("exchange of times");
  std::vector<double> means;
  half.iterations_us.assign(iterations, 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t column = i % mine.size();
    if (column == iterations)
      means.push_back(all[i]);
    else
      half.iterations_us[column] = std::max(half.iterations_us[column], 1e6 * all[i]);
  }
  half.time_us = 1e6 * combine(means, options_->average);
  return {};
}

Result<std::int64_t> Bench::check(const Line& line, bool in_place) {
  const Shape shape = shape_of(line);
  const Call call = place(line, in_place, 0);
  const Pattern pattern = next_pattern(line);
  // What a call forgets to write must not look right by being left over from the one before.
  std::memset(place(line, false, 0).output, kUntouched, message_bytes(line));
  pattern.fill(const_cast<void*>(call.input), communicator_->rank(), 0, shape.input);
  if (Status status = tool_->call(*communicator_, call); !status.ok()) return status;

  const std::int64_t own = count_wrong(line, pattern, call);
  std::int64_t total = own;
  Status status = communicator_->all_reduce(std::span<std::int64_t>(&total, 1), ReduceOp::sum);
  if (!status.ok()) return status.with_context("sum of #wrong");
  return std::max(total, own);  // the sum is itself the work of what is being checked
}

std::int64_t Bench::count_wrong(const Line& line, const Pattern& pattern, const Call& call) const {
  const std::size_t element_bytes = size_of(line.type);
  const Rank rank = communicator_->rank();
  const auto* got = static_cast<const std::byte*>(call.output);
  std::size_t wrong = 0, offset = 0;
  for (const Piece& piece :
       tool_->expected(shape_of(line), rank, communicator_->size(), line.root)) {
    const Mismatch mismatch =
        pattern.compare(got + offset * element_bytes, piece.source, piece.first, piece.count);
    if (mismatch.count > 0 && wrong == 0) {
      std::byte expected[sizeof(double)];
      pattern.fill(expected, piece.source, piece.first + mismatch.first, 1);
      const std::size_t at = offset + mismatch.first;
      fmt::print(stderr, "{}: element {} is {}, not {}; input {}, output {}\n", describe(line), at,
                 hexadecimal(got + at * element_bytes, element_bytes),
                 hexadecimal(expected, element_bytes), call.input, fmt::ptr(call.output));
    }
    wrong += mismatch.count;
    offset += piece.count;
  }
  return static_cast<std::int64_t>(wrong);
}

std::string Bench::describe(const Line& line) const {
  const Shape shape = shape_of(line);
  std::string text =
      fmt::format("rank {}: {} of {} B ({} {}", communicator_->rank(), to_string(tool_->collective),
                  message_bytes(line), shape.count, to_string(line.type));
  if (is_reduction(tool_->collective)) text += fmt::format(", {}", to_string(line.op));
  if (has_root(tool_->collective)) text += fmt::format(", root {}", line.root);
  return text + ")";
}

Status Bench::explained(const Status& status, const Line& line) const {
  return status.with_context(describe(line));
}

}  // namespace tutti::perf

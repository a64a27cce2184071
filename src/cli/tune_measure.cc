// Rounds of calls and their medians. What depends on a clock is decided by the slowest rank's and
// shared, so that all ranks make the same calls.
#include "cli/tune_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/try.hpp"
#include "cli/tune_choose.hpp"
#include "collectives/explain.hpp"
#include "tutti/communicator.hpp"

namespace tutti::cli {
namespace {

using collectives::PlanQuery;
using collectives::PlanSettings;
using collectives::TunedChoice;
using runtime::CommunicatorState;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kCandidatesMax = 5;
constexpr double kHopeless = 6;                     // times the best prediction
constexpr double kBeaten = 2.5;                     // times the best of the first calls
constexpr std::size_t kVariedBytesMin = 32 * 1024;  // below, slices hardly matter
constexpr int kRounds = 9;                          // odd: a median is one of them
constexpr int kRoundsMin = 5;                       // where nine take longer than there is time
constexpr int kCallsMax = 1000;                     // of a round
constexpr std::size_t kBigMessage = std::size_t{4} << 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Memory for the calls of one kind of buffers.
class Pair {
 public:
  Pair(std::size_t bytes, bool shared) : shared_(shared) {
    for (void*& memory : memory_) {
      memory = shared ? allocate(bytes) : std::malloc(bytes);
      if (memory != nullptr) std::memset(memory, 0, bytes);
    }
  }
  ~Pair() {
    for (void* const memory : memory_) shared_ ? deallocate(memory) : std::free(memory);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  bool ok() const { return memory_[0] != nullptr && memory_[1] != nullptr; }
  void* input() const { return memory_[0]; }
  void* output() const { return memory_[1]; }

 private:
  bool shared_;
  void* memory_[2] = {};
};

// One way on one kind of buffers, and its rounds.
struct Runner {
  TunedChoice choice;
  std::shared_ptr<const collectives::Plan> plan;
  const Pair* buffers = nullptr;
  int calls = 1;
  double first_us = 0;
  std::vector<double> rounds_us;
};

class Measuring {
 public:
  Measuring(runtime::CommunicatorParts parts, const TuneWork& work)
      : work_(work), options_(parts.planner_options), planner_(std::move(parts.planner)) {
    key_ = {std::string(parts.transport->traits().name), parts.transport->size(), 0,
            parts.transport->traits().direct};
    any_memory_ = parts.transport->traits().any_memory;
    parts.plan_source = [this](const PlanQuery& query) { return choose(query); };
    state_ = std::make_shared<CommunicatorState>(std::move(parts));
  }

  Result<TuneFindings> run() {
    TUTTI_TRY(make_buffers());
    findings_.place.key = key_;
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(work_.time);
    if (work_.messages) TUTTI_TRY(measure_messages());
    TUTTI_TRY(measure_blocks());
    TUTTI_TRY(barrier());
    TUTTI_TRY(state_->close());
    return std::move(findings_);
  }

 private:
  // The forced plan for the collective that is measured, the usual one for all others.
  Result<std::shared_ptr<const collectives::Plan>> choose(const PlanQuery& query) {
    if (forced_) return forced_;
    return planner_->plan(query, state_->rank());
  }

  Status make_buffers() {
    std::size_t bytes = kBigMessage;
    for (const std::size_t size : work_.sizes) bytes = std::max(bytes, size);
    // Where only some memory can be addressed, both kinds count.
    if (key_.direct && !any_memory_) buffers_.push_back(std::make_unique<Pair>(bytes, true));
    buffers_.push_back(std::make_unique<Pair>(bytes, false));
    for (const auto& pair : buffers_)
      if (!pair->ok()) return Status(StatusCode::system_error, "no memory for the buffers");
    return {};
  }

  Status barrier() {
    CommunicatorState::Request request;
    request.type = DataType::int32;
    return state_->run(request);
  }

  // The largest of all ranks' values, for each.
  Status agree(std::vector<double>& values) {
    CommunicatorState::Request request;
    request.collective = Collective::all_reduce;
    request.input = request.output = values.data();
    request.count = values.size();
    request.type = DataType::float64;
    request.op = ReduceOp::max;
    return state_->run(request);
  }

  // What is left of the time by rank 0's clock, the same on all ranks.
  Result<double> seconds_left() {
    std::vector<double> left = {
        state_->rank() == 0 ? std::max(0.0, Seconds(end_ - Clock::now()).count()) : 0};
    TUTTI_TRY(agree(left));
    return left[0];
  }

  // Of what there is no time for, the model goes on to choose.
  Status measure_blocks() {
    std::size_t blocks = work_.collectives.size() * work_.sizes.size();
    for (const Collective collective : work_.collectives)
      for (const std::size_t bytes : work_.sizes) {
        const auto left = seconds_left();
        TUTTI_TRY(left);
        if (*left <= 0 && !findings_.by_model.empty()) return {};
        TUTTI_TRY(measure_block(collective, bytes, *left / static_cast<double>(blocks--)));
      }
    return {};
  }

  // ---- Messages ----

  Status send(std::size_t bytes, Rank to, Rank from) {
    CommunicatorState::Request request;
    request.collective = Collective::send_recv;
    request.type = DataType::uint8;
    request.count = bytes;
    request.to = to;
    request.from = from;
    if (to >= 0) request.input = buffers_[0]->input();
    if (from >= 0) request.output = buffers_[0]->output();
    return state_->run(request);
  }

  // So many times there and back between ranks 0 and 1: half of the mean.
  Result<double> one_way_us(std::size_t bytes, int times) {
    TUTTI_TRY(barrier());
    const Rank me = state_->rank();
    const auto begin = Clock::now();
    for (int i = 0; i < times && me < 2; ++i) {
      TUTTI_TRY(send(bytes, me == 0 ? 1 : -1, me == 0 ? -1 : 0));
      TUTTI_TRY(send(bytes, me == 0 ? -1 : 0, me == 0 ? 1 : -1));
    }
    std::vector<double> us = {Seconds(Clock::now() - begin).count() * 1e6 / times / 2};
    TUTTI_TRY(agree(us));
    return us[0];
  }

  // The median of rounds that together take about a fiftieth of the time.
  Result<double> message_us(std::size_t bytes) {
    TUTTI_TRY(one_way_us(bytes, 1));
    const auto first = one_way_us(bytes, 2);
    TUTTI_TRY(first);
    const double round_us = work_.time.count() * 1e6 / 50 / kRounds;
    const int times = static_cast<int>(std::clamp(round_us / 2 / *first, 1.0, 1.0 * kCallsMax));
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
      const auto us = one_way_us(bytes, times);
      TUTTI_TRY(us);
      rounds.push_back(*us);
    }
    return median(rounds);
  }

  Status measure_messages() {
    const auto small = message_us(8);
    TUTTI_TRY(small);
    const auto big = message_us(kBigMessage);
    TUTTI_TRY(big);
    findings_.message_us = rounded(*small, 4);
    findings_.bytes_per_ns = rounded(static_cast<double>(kBigMessage) / (*big * 1000), 4);
    return {};
  }

  // ---- Collectives ----

  Result<double> calls_us(const Runner& runner, const PlanQuery& query, int calls) {
    TUTTI_TRY(barrier());
    CommunicatorState::Request request;
    request.collective = query.collective;
    request.input = runner.buffers->input();
    request.output = runner.buffers->output();
    request.count = query.count;
    request.type = query.type;
    request.root = query.root;
    forced_ = runner.plan;
    const auto begin = Clock::now();
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = state_->run(request);
    const double us = Seconds(Clock::now() - begin).count() * 1e6 / calls;
    forced_ = nullptr;
    TUTTI_TRY(status);
    return us;
  }

  Result<std::vector<Runner>> runners_for(const PlanQuery& query) {
    const auto candidates = tune_candidates(*planner_, query, options_);
    TUTTI_TRY(candidates);
    std::vector<Runner> runners;
    for (const TunedChoice& choice : *candidates) {
      auto plan = planner_->plan_as(query, choice, state_->rank());
      TUTTI_TRY(plan);
      for (const auto& pair : buffers_) runners.push_back({choice, *plan, pair.get(), 1, 0, {}});
    }
    return runners;
  }

  // Two calls of each, which say how many a round can have, and whom it can do without.
  Status begin_rounds(std::vector<Runner>& runners, const PlanQuery& query, double seconds) {
    const auto begin = Clock::now();
    std::vector<double> first;
    for (const Runner& runner : runners) {
      double us = 0;
      for (int i = 0; i < 2; ++i) {
        const auto call = calls_us(runner, query, 1);
        TUTTI_TRY(call);
        us = *call;
      }
      first.push_back(us);
    }
    const double spent = Seconds(Clock::now() - begin).count();
    first.push_back(state_->rank() == 0 ? std::max(0.0, seconds - spent) * 1e6 : 0);
    TUTTI_TRY(agree(first));
    const double time_us = first.back();
    first.pop_back();
    drop_beaten(runners, first);
    double once_us = 0;
    for (const Runner& runner : runners) once_us += runner.first_us;
    rounds_ = once_us * kRounds <= time_us ? kRounds : kRoundsMin;
    const double round_us = time_us / rounds_ / static_cast<double>(runners.size());
    for (Runner& runner : runners)
      runner.calls = static_cast<int>(std::clamp(round_us / runner.first_us, 1.0, 1.0 * kCallsMax));
    return {};
  }

  // A candidate leaves with all its kinds of buffers, and only if it is slow on each of them.
  // Single calls of small data tell little. The model's stays.
  void drop_beaten(std::vector<Runner>& runners, const std::vector<double>& first_us) const {
    const std::size_t kinds = buffers_.size();
    std::vector<double> best(kinds, INFINITY);
    for (std::size_t i = 0; i < runners.size(); ++i) {
      runners[i].first_us = std::max(0.01, first_us[i]);
      best[i % kinds] = std::min(best[i % kinds], runners[i].first_us);
    }
    std::vector<Runner> kept;
    for (std::size_t i = 0; i < runners.size(); i += kinds) {
      bool hope = i == 0;
      for (std::size_t k = 0; k < kinds; ++k)
        hope |= runners[i + k].first_us < std::max(kBeaten * best[k], 50.0);
      for (std::size_t k = 0; k < kinds && hope; ++k) kept.push_back(std::move(runners[i + k]));
    }
    runners = std::move(kept);
  }

  Status measure_block(Collective collective, std::size_t bytes, double seconds) {
    const PlanQuery query =
        collectives::query_of_size(collective, DataType::float32, 0, key_.ranks, bytes);
    if (query.count == 0) return {};
    auto runners = runners_for(query);
    TUTTI_TRY(runners);
    findings_.by_model.push_back({collective, bytes, runners->front().choice});
    TUTTI_TRY(begin_rounds(*runners, query, seconds));
    std::vector<double> rounds;
    for (int round = 0; round < rounds_; ++round)
      for (const Runner& runner : *runners) {
        const auto us = calls_us(runner, query, runner.calls);
        TUTTI_TRY(us);
        rounds.push_back(*us);
      }
    TUTTI_TRY(agree(rounds));
    for (std::size_t i = 0; i < rounds.size(); ++i)
      (*runners)[i % runners->size()].rounds_us.push_back(rounds[i]);
    note_times(*runners, collective, bytes);
    return {};
  }

  void note_times(const std::vector<Runner>& runners, Collective collective, std::size_t bytes) {
    const auto us = [](const Runner& runner) {
      return rounded(std::max(0.001, median(runner.rounds_us)), 4);
    };
    for (std::size_t i = 0; i < runners.size(); i += buffers_.size()) {
      collectives::TunedTime time{collective, bytes, runners[i].choice, us(runners[i]), {}};
      if (buffers_.size() > 1) time.plain_us = us(runners[i + 1]);
      findings_.place.times.push_back(std::move(time));
    }
  }

  const TuneWork& work_;
  collectives::PlannerOptions options_;
  std::unique_ptr<collectives::Planner> planner_;
  collectives::TuningKey key_;
  bool any_memory_ = false;
  Clock::time_point end_;
  int rounds_ = kRounds;  // of the collective and size that are measured
  std::shared_ptr<const collectives::Plan> forced_;
  std::vector<std::unique_ptr<Pair>> buffers_;
  std::shared_ptr<CommunicatorState> state_;  // goes first: it may use what stands above
  TuneFindings findings_;
};

void add_new(std::vector<TunedChoice>& choices, TunedChoice choice) {
  if (std::find(choices.begin(), choices.end(), choice) == choices.end())
    choices.push_back(std::move(choice));
}

// The same algorithm with other channels, and with slices of a quarter or four times the size.
void add_variants(const TunedChoice& choice, const collectives::PlannerOptions& options,
                  std::vector<TunedChoice>& choices) {
  const PlanSettings& settings = choice.settings;
  TunedChoice variant = choice;
  variant.settings.channels = settings.channels > 1 ? 1 : std::min(2, options.channel_count);
  add_new(choices, variant);
  variant = choice;
  variant.settings.slice_bytes = settings.slice_bytes < options.frame_bytes_max
                                     ? options.frame_bytes_max
                                     : options.frame_bytes_max / 4;
  add_new(choices, variant);
}

}  // namespace

Result<std::vector<TunedChoice>> tune_candidates(collectives::Planner& planner,
                                                 const PlanQuery& query,
                                                 const collectives::PlannerOptions& options) {
  const auto explanation = planner.explain(query);
  TUTTI_TRY(explanation);
  std::vector<TunedChoice> choices;
  const auto& candidates = explanation->candidates;
  for (const collectives::Candidate& candidate : candidates)
    if (candidate.not_possible.empty() && choices.size() < kCandidatesMax &&
        candidate.predicted_us <= kHopeless * candidates.front().predicted_us)
      add_new(choices, {candidate.algorithm, candidate.settings});
  const std::size_t varied =
      collectives::size_bytes(query, planner.ranks()) < kVariedBytesMin ? 0 : 2;
  for (std::size_t i = 0; i < std::min(varied, choices.size()); ++i)
    add_variants(TunedChoice(choices[i]), options, choices);
  // A variant that cannot serve is none.
  choices.erase(std::remove_if(choices.begin(), choices.end(),
                               [&](const TunedChoice& choice) {
                                 return !planner.predict(query, choice).ok();
                               }),
                choices.end());
  if (choices.empty()) return Status(StatusCode::unsupported, "nothing can serve");
  return choices;
}

Result<TuneFindings> tune_measure(runtime::CommunicatorParts parts, const TuneWork& work) {
  return Measuring(std::move(parts), work).run();
}

// A tuning table: the messages as figures of the transport, the place, and, as a place of which
// there is no second, what the model takes.
std::string encode(const TuneFindings& findings) {
  collectives::TransportFigures figures;
  figures.transport = findings.place.key.transport;
  figures.latency_ns = findings.message_us * 1000;
  if (findings.bytes_per_ns > 0) figures.bandwidth = findings.bytes_per_ns;
  collectives::TuningPlace measured = findings.place;
  measured.key.cores = 1;
  collectives::TuningPlace model{measured.key, findings.by_model, {}};
  model.key.cores = 2;
  return to_text(collectives::TuningTable{"any", {figures}, {model, measured}});
}

Result<TuneFindings> decode_findings(const std::string& text) {
  auto table = collectives::tuning_from_text(text);
  TUTTI_TRY(table);
  if (table->places.size() != 2 || table->transports.size() != 1)
    return Status(StatusCode::corrupt_data, "not what a world found");
  TuneFindings findings;
  findings.message_us = table->transports[0].latency_ns.value_or(0) / 1000;
  findings.bytes_per_ns = table->transports[0].bandwidth.value_or(0);
  findings.by_model = std::move(table->places[0].uses);
  findings.place = std::move(table->places[1]);
  return findings;
}

}  // namespace tutti::cli

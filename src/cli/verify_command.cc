// verify_command.cc: options of `tutti verify`, its progress line and its report.
#include "cli/verify_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/file.hpp"
#include "base/try.hpp"
#include "cli/verify_campaign.hpp"
#include "collectives/text.hpp"
#include "collectives/verifier.hpp"

namespace tutti::cli {
namespace {

// Three slices of a ring of so many ranks are still within what the verifier takes.
constexpr int kRanksMax = 100;
constexpr std::size_t kShownMax = 10;

struct Options {
  bool all = false;
  std::string ranks = "1..9";
  std::string collective;
  std::string algorithm;
  std::string file;
  bool two_sided = false;
  bool lowered = false;
  bool list_proofs = false;
  CampaignOptions campaign;
};

// "7" or "1..33".
Status parse_ranks(const std::string& text, CampaignOptions& options) {
  int first = 0;
  int last = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d..%d%c", &first, &last, &rest) != 2) {
    if (std::sscanf(text.c_str(), "%d%c", &first, &rest) != 1)
      return Status(StatusCode::invalid_argument,
                    fmt::format("--ranks {}: write a number or a range such as 1..33", text));
    last = first;
  }
  if (first < 1 || last < first || last > kRanksMax)
    return Status(StatusCode::invalid_argument,
                  fmt::format("--ranks {}: from 1 to at most {}, ascending", text, kRanksMax));
  options.ranks_min = first;
  options.ranks_max = last;
  return {};
}

Status check_names(Options& options) {
  if (!options.collective.empty()) {
    const Result<Collective> collective = parse_collective(options.collective);
    TUTTI_TRY(collective);
    options.campaign.collective = *collective;
  }
  options.campaign.algorithm = options.algorithm;
  std::string known;
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms()) {
    if (options.campaign.collective && algorithm.collective != *options.campaign.collective)
      continue;
    if (options.algorithm.empty() || algorithm.name == options.algorithm) return {};
    if (known.find(fmt::format(" {}", algorithm.name)) == std::string::npos)
      known += fmt::format(" {}", algorithm.name);
  }
  return Status(StatusCode::invalid_argument,
                fmt::format("no algorithm '{}'; there are:{}", options.algorithm, known));
}

Status check_chunks(const CampaignOptions& options) {
  for (int factor : options.chunk_factors)
    if (factor < 1 || factor > 64)
      return Status(StatusCode::invalid_argument,
                    fmt::format("--chunks {}: multiples from 1 to 64", factor));
  return {};
}

Status prepare(Options& options) {
  if (!options.all && options.collective.empty() && options.algorithm.empty() &&
      options.file.empty())
    return Status(StatusCode::invalid_argument,
                  "say what to prove: --all, --collective, --algorithm or --file");
  TUTTI_TRY(parse_ranks(options.ranks, options.campaign));
  TUTTI_TRY(check_names(options));
  TUTTI_TRY(check_chunks(options.campaign));
  if (options.two_sided != options.lowered) {
    options.campaign.two_sided = options.two_sided;
    options.campaign.lowered = options.lowered;
  }
  return {};
}

// "2-4, 6".
std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last;
  }
  return text;
}

void print_some(std::string_view title, const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < std::min(lines.size(), kShownMax); ++i)
    fmt::print("{}  {}\n", title, lines[i]);
  if (lines.size() > kShownMax)
    fmt::print("{}  ... and {} more\n", title, lines.size() - kShownMax);
}

void print_mutants(const collectives::MutationReport& mutants, bool list_proofs) {
  if (mutants.total() == 0) return;
  fmt::print("mutants         {}: {} rejected, {} equivalent (each with a proof), {} survived\n",
             mutants.total(), mutants.rejected(), mutants.equivalent, mutants.survivors.size());
  std::string reasons;
  for (std::size_t i = 1; i < mutants.rejected_by.size(); ++i)
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", mutants.rejected_by[i],
                           to_string(static_cast<collectives::Fault>(i)));
  fmt::print("  rejected as   {}\n", reasons);
  std::map<std::string, int> proofs;
  for (const std::string& line : mutants.proofs) {
    const std::string proof = line.substr(line.rfind(": ") + 2);
    ++proofs[proof.substr(0, proof.find(" ("))];
  }
  for (const auto& [proof, count] : proofs) fmt::print("  equivalent    {}: {}\n", count, proof);
  if (list_proofs)
    for (const std::string& line : mutants.proofs) fmt::print("  equivalent    {}\n", line);
  print_some("SURVIVED", mutants.survivors);
}

void print_report(const CampaignReport& report, double seconds, bool list_proofs) {
  for (const auto& [name, none] : report.not_applicable)
    fmt::print("not applicable  {} for {} ranks: {}\n", name, ranges_text(none.ranks), none.reason);
  print_some("FAILED", report.failures);
  fmt::print("schedules       {} (in {} forms and chunkings)\n", report.schedules, report.worlds);
  fmt::print("steps           {}\n", report.steps);
  fmt::print("messages        {}\n", report.messages);
  print_mutants(report.mutants, list_proofs);
  fmt::print("time            {:.1f} s\n", seconds);
  const std::size_t broken = report.failures.size() + report.mutants.survivors.size();
  if (report.ok())
    fmt::print("all proved\n");
  else
    fmt::print("NOT PROVED: {} problems\n", broken);
}

Status prove_file(const Options& options, CampaignReport& report) {
  const Result<std::string> text = base::read_file(options.file);
  if (!text.ok())
    return Status(StatusCode::system_error, fmt::format("cannot read {}", options.file));
  const Result<Schedule> schedule = collectives::parse_schedule(*text);
  TUTTI_TRY(schedule.status().with_context(options.file));
  prove_foreign(options.file, *schedule, options.campaign, report);
  return {};
}

CampaignReport prove_table(const Options& options) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kBetweenLines = std::chrono::milliseconds(200);
  const bool shows = isatty(STDERR_FILENO) != 0;
  Clock::time_point shown = Clock::now();
  CampaignReport report =
      run_campaign(options.campaign, [&](double share, const CampaignReport& so_far) {
        if (!shows || Clock::now() - shown < kBetweenLines) return;
        shown = Clock::now();
        fmt::print(stderr, "\r{:3.0f}%  {} schedules, {} steps, {} mutants, {} problems ",
                   share * 100, so_far.schedules, so_far.steps, so_far.mutants.total(),
                   so_far.failures.size() + so_far.mutants.survivors.size());
      });
  if (shows) fmt::print(stderr, "\r{:78}\r", "");
  return report;
}

int run_verify(Options& options) {
  const auto start = std::chrono::steady_clock::now();
  Status status = prepare(options);
  CampaignReport report;
  if (status.ok() && !options.file.empty())
    status = prove_file(options, report);
  else if (status.ok())
    report = prove_table(options);
  if (!status.ok()) {
    fmt::print(stderr, "tutti verify: {}\n", status.message());
    return 2;
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  print_report(report, time.count(), options.list_proofs);
  return report.ok() ? 0 : 1;
}

}  // namespace

void add_verify_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Prove schedules correct and free of deadlock");
  command->add_flag("--all", options->all, "Every algorithm, every root, several chunkings");
  command->add_option("--ranks", options->ranks, "Numbers of ranks, such as 8 or 1..33")
      ->type_name("RANGE")
      ->capture_default_str();
  command->add_option("--collective", options->collective, "Only this one, such as all_reduce")
      ->type_name("NAME");
  command->add_option("--algorithm", options->algorithm, "Only this one, such as ring")
      ->type_name("NAME");
  command->add_option("--file", options->file, "One schedule, in its text form")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  command
      ->add_option("--chunks", options->campaign.chunk_factors,
                   "Multiples of the algorithm's own number of chunks")
      ->delimiter(',')
      ->type_name("LIST")
      ->capture_default_str();
  command->add_flag("--two-sided", options->two_sided, "Only the form that algorithms are told in");
  command->add_flag("--lowered", options->lowered, "Only the forms that executors run");
  command
      ->add_option("--mutants", options->campaign.mutants,
                   "Also damage small schedules in at least so many ways; all must be rejected")
      ->check(CLI::Range(0, 10'000'000))
      ->type_name("N");
  command->add_flag("--list-proofs", options->list_proofs,
                    "Print why each harmless mutant is harmless");
  command->add_option("--threads", options->campaign.threads, "One per core when 0")
      ->check(CLI::Range(0, 256))
      ->type_name("N");
  command->callback([options, &exit_code] { exit_code = run_verify(*options); });
}

}  // namespace tutti::cli

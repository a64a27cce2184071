// report_test.cc: metrics files that survive a crash and a resumed run, progress lines, and the
// small texts and numbers that reports are made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "training/files/output_file.hpp"
#include "training/report/fingerprint.hpp"
#include "training/report/memory_table.hpp"
#include "training/report/metrics.hpp"
#include "training/report/progress.hpp"
#include "training/report/text.hpp"
#include "unit/training/in_folder.hpp"

namespace tutti::training {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using test::InFolder;

// ---- texts ----

TEST(Text, NumbersAreAsPeopleReadThem) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{49} << 28), "12.25 GiB");
  EXPECT_EQ(format_bytes(~std::uint64_t{0}), "16384 PiB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.7), "1k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(124'439'808), "124M");
  EXPECT_EQ(format_count(-1.76e9), "-1.76B");
  EXPECT_EQ(format_share(0.4123), "41.2%");
  EXPECT_EQ(format_share(std::nan("")), "-");
}

TEST(Text, DurationsChangeUnitsWhereTheyGrow) {
  const std::pair<double, std::string> cases[] = {
      {0, "0.00 us"},       {450e-6, "450 us"},    {12.5e-3, "12.5 ms"},       {0.9996, "1.00 s"},
      {3.2, "3.20 s"},      {59.94, "59.9 s"},     {59.96, "1 min 00 s"},      {245, "4 min 05 s"},
      {7380, "2 h 03 min"}, {273'600, "3 d 04 h"}, {1e300, "11574074 d 01 h"}, {-1, "-"},
      {std::nan(""), "-"},
  };
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_duration(seconds), text);
}

TEST(Text, ExactNumbersReadBackToTheSameBits) {
  EXPECT_EQ(exact(1.5), "0x1.8p+0");
  for (const double value :
       {0.0, -0.0, 1.0, 0.1, -2.718281828459045, 5e-324, 2.5e-310, 1.7e308, HUGE_VAL, -HUGE_VAL}) {
    const auto back = parse_exact(exact(value));
    ASSERT_TRUE(back) << exact(value);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(value));
  }
  EXPECT_TRUE(std::isnan(*parse_exact(exact(-std::nan("")))));
  for (const std::string_view bad : {"", "1.5", "0x", "0x1.8p+0z", "--0x1p+0", "0x-1p+0", "-"})
    EXPECT_FALSE(parse_exact(bad)) << bad;
}

TEST(Fingerprint, SeesEveryBitAndEveryPlace) {
  std::array<std::byte, 40> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  std::vector<std::uint64_t> all = {fingerprint(bytes)};
  EXPECT_EQ(fingerprint(bytes), all[0]);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    all.push_back(fingerprint(changed));
  }
  for (std::size_t length = 0; length < bytes.size(); ++length)
    all.push_back(fingerprint(std::span(bytes).first(length)));
  // Changed signs of floats in all places together.
  for (unsigned which = 1; which < 1u << 10; ++which) {
    if (std::has_single_bit(which)) continue;  // one bit alone, which was there
    auto changed = bytes;
    for (std::size_t i = 0; i < 10; ++i)
      if ((which >> i & 1) != 0) changed[4 * i + 3] ^= std::byte{0x80};
    all.push_back(fingerprint(changed));
  }
  all.push_back(fingerprint(bytes, all[0]));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST(Fingerprint, ZerosOfOtherLengthsDiffer) {
  const std::array<std::byte, 17> zeros{};
  EXPECT_NE(fingerprint(std::span(zeros).first(16)), fingerprint(std::span(zeros).first(8)));
  EXPECT_NE(fingerprint(zeros), fingerprint(std::span(zeros).first(16)));
}

// ---- metrics ----

StepMetrics metrics_of(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 5.0 / static_cast<double>(step + 1);
  metrics.learning_rate = 3e-4;
  metrics.gradient_norm = 0.5125;
  metrics.tokens_per_second = 12345;
  metrics.mfu = 0.412;
  metrics.exposed_communication = 0.031;
  metrics.seconds = 0.25;
  metrics.tokens = 4096 * (step + 1);
  return metrics;
}

TEST(Metrics, ALineIsAJsonObjectThatReadsBack) {
  StepMetrics metrics = metrics_of(2);
  metrics.more = {{"validation_loss", 0.1}, {"balance_loss", 1e-3}};
  const std::string line = to_json(metrics);
  EXPECT_THAT(line, StartsWith(R"({"step":2,"loss":1.6666666666666667,"loss_hex":"0x1.aaaa)"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["lr"], 3e-4);
  EXPECT_EQ(json["gradient_norm"], 0.5125);
  EXPECT_EQ(json["tokens_per_second"], 12345);
  EXPECT_EQ(json["mfu"], 0.412);
  EXPECT_EQ(json["exposed_communication"], 0.031);
  EXPECT_EQ(json["seconds"], 0.25);
  EXPECT_EQ(json["tokens"], 12288);
  const auto back = parse_metrics(line);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->step, 2);
  EXPECT_EQ(back->loss, 5.0 / 3);
  EXPECT_EQ(back->mfu, 0.412);
  EXPECT_EQ(back->more, metrics.more);
  EXPECT_EQ(to_json(*back), line);
}

TEST(Metrics, ALossThatIsNoNumberIsStillJson) {
  StepMetrics metrics = metrics_of(0);
  metrics.loss = HUGE_VAL;
  metrics.gradient_norm = std::nan("");
  const std::string line = to_json(metrics);
  EXPECT_THAT(line, HasSubstr(R"("loss":null,"loss_hex":"inf")"));
  const auto back = parse_metrics(line);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->loss, HUGE_VAL);
  EXPECT_TRUE(std::isnan(back->gradient_norm));
}

TEST(Metrics, WrongLinesAreNamed) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", "JSON object"},
      {"[1]", "JSON object"},
      {R"({"step":1})", "'step' or 'loss' is missing"},
      {R"({"step":-1,"loss":1})", "'step' should be"},
      {R"({"step":1.5,"loss":1})", "'step' should be"},
      {R"({"step":18446744073709551615,"loss":1})", "'step' should be"},
      {R"({"step":1,"loss":"x"})", "'loss' should be a number or null"},
      {R"({"step":1,"loss":1,"loss_hex":7})", "'loss_hex'"},
      {R"({"step":1,"loss":1,"other":[]})", "'other' should be"},
  };
  for (const auto& [line, text] : cases) {
    const auto parsed = parse_metrics(line);
    ASSERT_FALSE(parsed.ok()) << line;
    EXPECT_EQ(parsed.status().code(), StatusCode::corrupt_data);
    EXPECT_THAT(parsed.status().message(), HasSubstr(std::string(text)));
  }
}

using MetricsFile = InFolder;

void write_steps(MetricsWriter& writer, std::int64_t begin, std::int64_t end) {
  for (std::int64_t step = begin; step < end; ++step)
    ASSERT_TRUE(writer.write(metrics_of(step)).ok());
}

// A run that stopped at step 9, whose last checkpoint is of step 5, and that goes on to 12, writes
// the file of a run that never stopped.
TEST_F(MetricsFile, AResumedRunWritesTheSameFile) {
  auto straight = MetricsWriter::open(path("straight"));
  ASSERT_TRUE(straight.ok());
  write_steps(*straight, 0, 12);
  {
    auto first = MetricsWriter::open(path("resumed"));
    write_steps(*first, 0, 9);
  }
  auto second = MetricsWriter::open(path("resumed"));
  ASSERT_TRUE(second.ok() && second->truncate_after(5).ok());
  write_steps(*second, 6, 12);
  EXPECT_EQ(text_of("resumed"), text_of("straight"));
  const auto read = read_metrics(path("resumed"));
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 12u);
  EXPECT_EQ(read->at(11).step, 11);
  ASSERT_TRUE(second->truncate_after(-1).ok());
  EXPECT_THAT(text_of("resumed"), IsEmpty());
}

TEST_F(MetricsFile, AHalfWrittenLineIsDropped) {
  const std::string whole = to_json(metrics_of(0)) + "\n";
  for (const std::size_t kept : {1ul, whole.size() / 2, whole.size() - 1}) {
    ASSERT_TRUE(write_file(path("m"), whole + whole.substr(0, kept)).ok());
    EXPECT_EQ(read_metrics(path("m"))->size(), 1u);
    auto writer = MetricsWriter::open(path("m"));
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    EXPECT_EQ(text_of("m"), whole);
    write_steps(*writer, 1, 2);
    EXPECT_EQ(read_metrics(path("m"))->size(), 2u);
  }
}

TEST_F(MetricsFile, WhatIsNotOursIsRefusedAndKept) {
  const std::string whole = to_json(metrics_of(0)) + "\n";
  for (const std::string& wrong :
       {whole + "notes\n" + whole, whole + std::string(100'000, ' ') + "\n"}) {
    ASSERT_TRUE(write_file(path("m"), wrong).ok());
    const auto writer = MetricsWriter::open(path("m"));
    EXPECT_EQ(writer.status().code(), StatusCode::corrupt_data);
    EXPECT_THAT(writer.status().message(), HasSubstr("/m', line 2"));
    EXPECT_EQ(text_of("m"), wrong);
  }
  EXPECT_EQ(read_metrics(path("none")).status().code(), StatusCode::system_error);
}

// ---- progress ----

TEST(Progress, SaysWhatMattersAsFarAsThereIsRoom) {
  const std::string whole =
      "step 120/1000  loss 0.0417  lr 3.00e-04  norm 0.512  12.3k tok/s  MFU 41.2%  comm 3.1%  "
      "ETA 4 min 05 s";
  EXPECT_EQ(format_progress(metrics_of(119), 1000, 245, 200), whole);
  EXPECT_EQ(format_progress(metrics_of(119), 1000, 245, whole.size()), whole);
  EXPECT_THAT(format_progress(metrics_of(999), 1000, 0, 200), EndsWith("comm 3.1%"));
  EXPECT_THAT(format_progress(metrics_of(119), 1000, 245, whole.size() - 1), EndsWith("comm 3.1%"));
  EXPECT_EQ(format_progress(metrics_of(119), 1000, 245, 30), "step 120/1000  loss 0.0417");
  EXPECT_THAT(format_progress(metrics_of(119), 0, 245, 200), StartsWith("step 120  loss"));
  EXPECT_THAT(format_progress(metrics_of(119), 0, 245, 200), EndsWith("comm 3.1%"));
}

TEST(Progress, TheRemainingTimeFollowsTheLastSteps) {
  RemainingTime remaining;
  EXPECT_TRUE(std::isnan(remaining.seconds(10)));
  remaining.add(2);
  EXPECT_NEAR(remaining.seconds(10), 20, 1e-12);  // one step counts in full
  remaining.add(2);
  EXPECT_NEAR(remaining.seconds(10), 20, 1e-12);
  for (int i = 0; i < 100; ++i) remaining.add(1);
  EXPECT_NEAR(remaining.seconds(10), 10, 0.01);
  EXPECT_EQ(remaining.seconds(0), 0);
}

// What Progress writes to a stream.
template <typename F>
std::string shown(const ProgressOptions& options, const F& use) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  {
    Progress progress(stream, options);
    use(progress);
  }
  std::fclose(stream);
  const std::string all(text, size);
  std::free(text);
  return all;
}

TEST(Progress, ATerminalHasOneLineThatIsWrittenAnew) {
  const std::string text = shown({10, 5, true, 40}, [](Progress& progress) {
    progress.update(metrics_of(0));
    progress.update(metrics_of(1));
    progress.note("saved");
    progress.update(metrics_of(2));
  });
  EXPECT_EQ(
      text,
      "\rstep 1/10  loss 5.0000  lr 3.00e-04\x1b[K\rstep 2/10  loss 2.5000  lr 3.00e-04\x1b[K\n"
      "saved\n\rstep 3/10  loss 1.6667  lr 3.00e-04\x1b[K\n");
}

TEST(Progress, AFileHasALineForEachInterval) {
  const std::string text = shown({12, 5, false, 24}, [](Progress& progress) {
    for (int step = 0; step < 12; ++step) progress.update(metrics_of(step));
  });
  EXPECT_EQ(text,
            "step 1/12  loss 5.0000\nstep 5/12  loss 1.0000\nstep 10/12  loss 0.5000\n"
            "step 12/12  loss 0.4167\n");
}

TEST(Progress, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  const ProgressOptions options = progress_options(file, 100, 7);
  EXPECT_FALSE(options.terminal);
  EXPECT_EQ(options.every, 7);
  EXPECT_GE(options.columns, 120u);
  std::fclose(file);
}

// ---- memory ----

TEST(MemoryTable, ShowsWhatAnArenaCounted) {
  Arena arena;
  const auto weights = arena.allocate(MemoryKind::parameter, 3 << 20);
  arena.allocate(MemoryKind::activation, 1536).reset();
  const MemoryUse use = memory_use(arena);
  EXPECT_EQ(memory_table({&use, 1}),
            "memory                   now          peak\n"
            "parameters             3 MiB         3 MiB\n"
            "gradients                0 B           0 B\n"
            "optimizer                0 B           0 B\n"
            "activations              0 B       1.5 KiB\n"
            "communication            0 B           0 B\n"
            "together               3 MiB         3 MiB\n");
}

TEST(MemoryTable, ComparesRanks) {
  std::vector<MemoryUse> ranks(3);
  for (std::size_t i = 0; i < 3; ++i) {
    ranks[i].peak[0] = (i + 1) << 10;
    ranks[i].total_peak = (i + 1) << 20;
  }
  const std::string table = memory_table(ranks);
  EXPECT_THAT(table, StartsWith("peak memory            least          most     all ranks\n"
                                "parameters             1 KiB         3 KiB         6 KiB\n"));
  EXPECT_THAT(table, EndsWith("together               1 MiB         3 MiB         6 MiB\n"));
  EXPECT_EQ(memory_table({}), "");
}

}  // namespace
}  // namespace tutti::training

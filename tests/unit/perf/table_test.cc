// Lines as nccl-tests prints them, letter by letter: scripts cut them at columns.
#include "perf/common/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Row all_reduce_row() {
  Row row;
  row.bytes = 134217728;
  row.count = 33554432;
  row.type = "float";
  row.op = "sum";
  row.out_of_place = {5871.07, 22.861, 22.861, 0, {}};
  row.in_place = Half{50573.44, 42.46, 121.234, 12, {}};
  return row;
}

TEST(Table, Row) {
  EXPECT_EQ(row_text(all_reduce_row(), {}),
            "   134217728      33554432     float     sum      -1  5871.07   22.86   22.86       0"
            "  50573.4   42.46  121.23      12\n");
}

TEST(Table, RowThatWasNotChecked) {
  Row row = all_reduce_row();
  row.out_of_place.wrong.reset();
  row.in_place->wrong.reset();
  EXPECT_EQ(row_text(row, {}),
            "   134217728      33554432     float     sum      -1  5871.07   22.86   22.86    N/A"
            "  50573.4   42.46  121.23    N/A\n");
}

TEST(Table, RowWithoutInPlace) {
  Row row;
  row.bytes = 96;
  row.count = 4;
  row.type = "double";
  row.root = 3;
  row.out_of_place = {1.5, 0.06, 0.05, 0, {}};
  EXPECT_EQ(row_text(row, {}),
            "          96             4    double    none       3     1.50    0.06    0.05       0"
            "      N/A     N/A     N/A    N/A\n");
}

TEST(Table, RowAndColumnsWithTheFloor) {
  Options options;
  options.floor = true;
  Row row = all_reduce_row();
  row.floor_us = 1467.7675;
  EXPECT_EQ(row_text(row, options),
            "   134217728      33554432     float     sum      -1  5871.07   22.86   22.86       0"
            "  1467.77   25.00  50573.4   42.46  121.23      12  1467.77    2.90\n");
  row.in_place.reset();
  EXPECT_EQ(row_text(row, options),
            "   134217728      33554432     float     sum      -1  5871.07   22.86   22.86       0"
            "  1467.77   25.00      N/A     N/A     N/A    N/A  1467.77     N/A\n");
  EXPECT_THAT(columns_text(options), HasSubstr("  #wrong    floor   share     time   algbw"));
  EXPECT_THAT(columns_text(options), HasSubstr("             (us)     (%)     (us)  (GB/s)"));
}

TEST(Table, RowWithIterationsAndTime) {
  Options options;
  options.per_iteration = true;
  options.skip_iterations = 1;
  options.timestamps = true;
  Row row = all_reduce_row();
  row.out_of_place.iterations_us = {900, 1, 3};
  row.in_place->iterations_us = {900, 2, 2};
  row.time_of_day = "2024-05-06 07:08:09";
  EXPECT_EQ(row_text(row, options),
            "   134217728      33554432     float     sum      -1  5871.07   22.86   22.86       0"
            "     1.00     3.00     3.00    50.00  50573.4   42.46  121.23      12"
            "     2.00     2.00     2.00     0.00  2024-05-06 07:08:09\n");
}

TEST(Table, Columns) {
  EXPECT_EQ(columns_text({}),
            "#\n"
            "#                                                   "
            "           out-of-place                       in-place          \n"
            "#       size         count      type   redop    root"
            "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n"
            "#        (B)    (elements)                          "
            "     (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n");
}

TEST(Table, ColumnsOfCpuTimeIterationsAndTimesOfDay) {
  Options options;
  options.cpu_time = options.per_iteration = options.timestamps = true;
  const std::string text = columns_text(options);
  const std::string half = "  cputime   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%";
  EXPECT_THAT(text, HasSubstr(half + half + "           timestamp\n"));
  EXPECT_THAT(text, HasSubstr(" (%)   %Y-%m-%d %H:%M:%S\n"));
}

TEST(Table, Header) {
  Options options;
  options.min_bytes = 8;
  options.max_bytes = 64;
  options.step_factor = 2;
  const std::string text = header_text("all_reduce_perf", options,
                                       {{0, 0, 4242, "sonata", 1, 0, 0, 1, "Some CPU @ 2.00GHz"}});
  EXPECT_THAT(text, MatchesRegex("# tutti-tests version [0-9.]+ \\(nccl-tests format 2.19.6\\)\n"
                                 "(.|\n)*"));
  EXPECT_THAT(
      text,
      HasSubstr("# Collective test starting: all_reduce_perf\n"
                "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 "
                "iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0\n"
                "#\n"
                "# Using devices\n"
                "#  Rank  0 Group  0 Pid   4242 on     sonata device  1 [0000:00:01] Some CPU @ "
                "2.00GHz\n"));
  options.step_factor = 1;
  EXPECT_THAT(header_text("x", options, {}), HasSubstr("step: 1048576(bytes)"));
}

TEST(Table, Summary) {
  EXPECT_EQ(summary_text("all_reduce_perf", {0, 14.99661, {}, {}}),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 14.9966 \n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "#\n");
  EXPECT_EQ(summary_text("reduce_perf", {7, 2, false, Memory{512, 3 << 20, 1536}}),
            "# Out of bounds values : 7 FAILED\n"
            "# Avg bus bandwidth    : 2 FAILED\n"
            "#\n"
            "# Collective test concluded: reduce_perf\n"
            "# Memory usage         : Initialization 512 B | User-Allocated 3.00 MB | Collective "
            "1.50 KB | Total 3.00 MB\n"
            "#\n");
  EXPECT_THAT(summary_text("x", {0, 2, true, {}}), HasSubstr(": 2 OK\n"));
}

TEST(Table, NumbersFitTheirColumns) {
  EXPECT_EQ(float_text(0, 7), "   0.00");
  EXPECT_EQ(float_text(9999.994, 7), "9999.99");
  EXPECT_EQ(float_text(9999.996, 7), "10000.0");
  EXPECT_EQ(float_text(1234567.4, 7), "1234567");
  EXPECT_EQ(float_text(12345678, 7), "1.2e+07");
  EXPECT_EQ(float_text(1234567, 6), " 1e+06");
}

TEST(Table, MemoryHasBinaryUnits) {
  EXPECT_EQ(memory_text(1), "1.00 B");
  EXPECT_EQ(memory_text(1023), "1023 B");
  EXPECT_EQ(memory_text(10 << 10), "10.0 KB");
  EXPECT_EQ(memory_text(std::int64_t{5} << 40), "5120 GB");
}

}  // namespace
}  // namespace tutti::perf

// pipeline_text.hpp: schedules as CSV: one line for each rank, one cell for each action, "2F3" for
// stage 2's forward of micro-batch 3; F, B, I (backward of input) and W (of weights), as PyTorch
// writes them. Empty cells, PyTorch's idle steps, are skipped. A chart's cells say from when to
// when: "2F3@10-12".
//
// Reads and writes strings, not files; whether what it read makes sense is pipeline_validator.hpp.
#pragma once

#include <string>
#include <string_view>

#include "training/plan/pipeline_schedule.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// Ends with a newline. Reading it gives the same again.
std::string schedule_csv(const PipelineSchedule& schedule);
std::string chart_csv(const PipelineChart& chart);

// The counts of chunks and micro-batches are the smallest that hold all cells.
// Errors  corrupt_data that names line and cell: what is no action, a stage that lies on another
//         line's rank, a number or a text that is too long.
Result<PipelineSchedule> parse_schedule_csv(std::string_view name, std::string_view text);
Result<PipelineChart> parse_chart_csv(std::string_view name, std::string_view text);

}  // namespace tutti::training

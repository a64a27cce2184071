// verifier_flow.hpp: all programs of a world joined into one value: steps linked by their messages,
// each message with the way it travels, each operand with the memory it touches, wherever that is.
// The abstract machines run on this.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/verifier.hpp"

namespace tutti::collectives {

enum class Route : std::uint8_t { memory, staged, pull, push };

// The memory of all ranks: every chunk is a cell with a number. In place, an output chunk and the
// input chunk that is the same memory are one cell.
class FlowMemory {
 public:
  FlowMemory(const ScheduleShape& shape, bool in_place);

  int cell(Rank rank, Buffer buffer, int chunk) const;
  int cells_per_rank() const { return cells_per_rank_; }
  int cell_count() const { return cells_per_rank_ * shape_.ranks; }
  Rank owner(int cell) const { return cell / cells_per_rank_; }
  std::string describe(int cell) const;  // "input[3] of rank 2"

 private:
  ScheduleShape shape_;
  bool in_place_;
  int outputs_ = 0;
  int inputs_ = 0;
  int cells_per_rank_ = 0;
};

struct FlowOperand {
  Route route = Route::memory;
  int message = -1;  // index into Flow::messages
  int cells = -1;    // where its `count` cells begin in Flow::cells; -1 when staged
};

struct FlowStep {
  Rank rank = 0;
  int number = 0;  // within the rank's program
  StepKind kind = StepKind::copy;
  bool finish = false;
  int count = 1;
  int landing = -1;  // index into `destinations`
  std::vector<FlowOperand> sources;
  std::vector<FlowOperand> destinations;
  std::vector<int> depends;  // steps that must be complete, under the chosen routes
  std::vector<int> fused;    // steps that this one need not wait for, under the chosen routes
};

struct FlowMessage {
  Rank from = 0;
  Rank to = 0;
  int ordinal = 0;
  Route route = Route::staged;
  int sender = -1;  // steps
  int receiver = -1;
  int previous = -1;  // message on the same stream
};

struct Flow {
  ScheduleShape shape;
  FlowMemory memory;
  std::vector<FlowStep> steps;        // rank by rank
  std::vector<int> first_step;        // of each rank; one more entry than ranks
  std::vector<FlowMessage> messages;  // those of a stream in order
  std::vector<int> cells;

  const int* cells_of(const FlowOperand& operand) const {
    return cells.data() + static_cast<std::size_t>(operand.cells);
  }
};

// Requires  programs that check_form accepts; addressability among as many ranks.
Flow join(std::span<const LoweredProgram> programs, const Addressability& addressable,
          bool in_place);

// What a step does to memory in its one pass. Content that a peer takes or puts by itself is not
// touched by the step that offers or grants it.
struct FlowAccess {
  const FlowOperand* operand = nullptr;
  bool write = false;
};
std::vector<FlowAccess> accesses_of(const FlowStep& step);

// Whether the step itself moves anything: not when it only offers content to peers that pull it, or
// only waits for what lands by itself.
bool moves_content(const FlowStep& step);

// Cells that two operands of a step touch at different places of its pass, at least one writing;
// or that it writes twice. Returns the cell, or -1. Such a step means nothing.
int self_conflict(const Flow& flow, const FlowStep& step);

}  // namespace tutti::collectives

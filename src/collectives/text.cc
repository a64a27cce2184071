// Writes schedules and programs as text. The other direction is text_parser.cc.
#include "collectives/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::collectives {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// "2*r-i+3"; a sum of nothing is its constant.
std::string sum_text(const AffineIndex& index) {
  std::string text;
  auto add_term = [&](int factor, char variable) {
    if (factor == 0) return;
    if (factor > 0 && !text.empty()) text += '+';
    if (factor == -1) text += '-';
    if (factor != 1 && factor != -1) text += fmt::format("{}*", factor);
    text += variable;
  };
  add_term(index.rank_factor(), 'r');
  add_term(index.loop_factor(), 'i');
  if (text.empty()) return std::to_string(index.constant());
  if (index.constant() != 0) text += fmt::format("{:+}", index.constant());
  return text;
}

std::string count_text(int count) { return count == 1 ? "" : fmt::format(" : {}", count); }

std::string operand_text(const Operand& operand, std::string_view preposition) {
  if (operand.kind == Operand::Kind::chunks)
    return fmt::format("{}[{}{}]", to_string(operand.buffer), to_text(operand.index),
                       count_text(operand.count));
  constexpr std::string_view kTravels[] = {"", "_queue", "_push"};
  return fmt::format("{}{} {}{}", preposition, kTravels[static_cast<int>(operand.travel)],
                     to_text(operand.index), count_text(operand.count));
}

std::string_view kind_text(StepKind kind, bool finish) {
  if (kind == StepKind::copy) return finish ? "copy finish" : "copy";
  return finish ? "finish" : "reduce";
}

// kind sources -> destinations, each operand written by `write(operand, "from" or "to")`.
template <typename AnyStep, typename Write>
std::string step_text(const AnyStep& step, const Write& write) {
  auto list = [&](const auto& operands, std::string_view preposition) {
    std::string text;
    for (const auto& operand : operands)
      text += (text.empty() ? "" : ", ") + write(operand, preposition);
    return text.empty() ? std::string("nothing") : text;
  };
  return fmt::format("{} {} -> {}", kind_text(step.kind, step.finish), list(step.sources, "from"),
                     list(step.destinations, "to"));
}

// Straight code stands without `repeat`; two parts of straight code in a row need it to stay two.
void append_program(const Program& program, std::string& text) {
  bool after_straight = false;
  for (const Repeat& part : program.parts) {
    const bool straight = part.times == 1 && !part.body.empty() && !after_straight;
    if (!straight) text += fmt::format("  repeat {}\n", part.times);
    for (const Step& step : part.body)
      text += fmt::format("{}{}\n", straight ? "  " : "    ", step_text(step, operand_text));
    if (!straight) text += "  end\n";
    after_straight = straight;
  }
}

// "0-3 8 10-12"
std::string ranks_text(const Schedule& schedule, int program) {
  std::string text;
  const int ranks = static_cast<int>(schedule.program_of_rank.size());
  for (int first = 0; first < ranks; ++first) {
    if (schedule.program_of_rank[at(first)] != program) continue;
    int last = first;
    while (last + 1 < ranks && schedule.program_of_rank[at(last) + 1] == program) ++last;
    text += first == last ? fmt::format(" {}", first) : fmt::format(" {}-{}", first, last);
    first = last;
  }
  return text.empty() ? " nobody" : text;
}

std::string numbers_text(const std::vector<int>& numbers) {
  return numbers.empty() ? "" : fmt::format("   after {}", fmt::join(numbers, ", "));
}

std::string lowered_operand_text(const LoweredProgram& program, const LoweredOperand& operand,
                                 std::string_view preposition) {
  const std::string memory =
      fmt::format("{}[{}{}]", to_string(operand.buffer), operand.chunk, count_text(operand.count));
  if (operand.kind == Operand::Kind::chunks) return memory;
  std::string text =
      fmt::format("{} {} #{}", preposition, program.peers[at(operand.stream)], operand.ordinal);
  if (operand.direct == DirectForm::none) return text + " queued";
  return fmt::format("{} {} {} {}", text, operand.direct == DirectForm::pull ? "pull" : "push",
                     operand.mine ? "my" : "its", memory);
}

}  // namespace

std::string to_text(const AffineIndex& index) {
  const bool plain = index.base() == 0 && index.stride() == 1 && index.modulus() == 0;
  if (plain) return sum_text(index);
  std::string text;
  if (index.base() != 0) text += fmt::format("{}+", index.base());
  if (index.stride() != 1) text += fmt::format("{}*", index.stride());
  text += fmt::format("({})", sum_text(index));
  if (index.modulus() != 0) text += fmt::format("%{}", index.modulus());
  return text;
}

std::string to_text(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  const std::string algorithm =
      schedule.algorithm.empty() ? "" : fmt::format("algorithm {}\n", schedule.algorithm);
  std::string text = fmt::format(
      "tutti schedule 1\n{}collective {}\nranks {}\nroot {}\nchunks {}\n"
      "scratch_blocks {}\nmessage_chunks_max {}\n",
      algorithm, to_string(shape.collective), shape.ranks, shape.root, shape.chunks,
      shape.scratch_blocks, shape.message_chunks_max);
  for (std::size_t p = 0; p < schedule.programs.size(); ++p) {
    text += fmt::format("\nprogram for{}\n", ranks_text(schedule, static_cast<int>(p)));
    append_program(schedule.programs[p], text);
  }
  return text;
}

std::string to_text(const ExpandedProgram& program) {
  std::string text;
  for (std::size_t s = 0; s < program.size(); ++s) {
    const auto write = [](const ExpandedOperand& o, std::string_view preposition) {
      return operand_text({o.kind, o.buffer, o.index, o.count, o.travel}, preposition);
    };
    text += fmt::format("{:4}  {}{}\n", s, step_text(program[s], write),
                        numbers_text(program[s].depends));
  }
  return text;
}

std::string to_text(const LoweredProgram& program) {
  std::string text = fmt::format("rank {} of {}, {}\n", program.rank, program.shape.ranks,
                                 to_string(program.shape.collective));
  for (std::size_t k = 0; k < program.peers.size(); ++k)
    text += fmt::format("peer {}: {} sent, {} received\n", program.peers[k], program.sends[k],
                        program.receives[k]);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const LoweredStep& step = program.steps[s];
    const auto write = [&](const LoweredOperand& operand, std::string_view preposition) {
      return lowered_operand_text(program, operand, preposition);
    };
    std::string depends;
    for (const LoweredDependency& dependency : step.depends)
      depends += fmt::format("{}{}{}", depends.empty() ? "   after " : ", ", dependency.step,
                             dependency.fused ? " (fused)" : "");
    text += fmt::format("{:4}  {}{}\n", s, step_text(step, write), depends);
  }
  return text;
}

}  // namespace tutti::collectives

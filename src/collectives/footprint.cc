// Adds up what the containers own.
#include "collectives/footprint.hpp"

namespace tutti::collectives {

std::size_t bytes_of(const Schedule& schedule) {
  std::size_t bytes = sizeof(Schedule) + bytes_of(schedule.programs) +
                      bytes_of(schedule.program_of_rank) + schedule.algorithm.capacity();
  for (const Program& program : schedule.programs) {
    bytes += bytes_of(program.parts);
    for (const Repeat& part : program.parts) {
      bytes += bytes_of(part.body);
      for (const Step& step : part.body)
        bytes += bytes_of(step.sources) + bytes_of(step.destinations);
    }
  }
  return bytes;
}

std::size_t bytes_of(const LoweredProgram& program) {
  std::size_t bytes = sizeof(LoweredProgram) + bytes_of(program.peers) + bytes_of(program.sends) +
                      bytes_of(program.receives) + bytes_of(program.steps);
  for (const LoweredStep& step : program.steps)
    bytes += bytes_of(step.sources) + bytes_of(step.destinations) + bytes_of(step.depends);
  return bytes;
}

}  // namespace tutti::collectives

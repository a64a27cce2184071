// One instance of the interpreter for each element type, as kernels.cu has them.
#include "host_kernels.hpp"

#include <array>
#include <utility>

#include "runtime/gpu/interpret.hpp"

namespace tutti::runtime::gpu {
namespace {

using Kernel = bool (*)(Block&, Team, const DeviceWorld&, const ProgramHeader&, const DeviceCall&,
                        std::uint32_t);

template <class Format>
bool interpret(Block& block, Team team, const DeviceWorld& world, const ProgramHeader& program,
               const DeviceCall& call, std::uint32_t channel) {
  HostPolicy policy(block.barrier, team);
  return Interpreter<HostPolicy, Format>(policy, block.shared, world, program).run(call, channel);
}

template <std::size_t... kIndex>
Kernel kernel_of(DataType type, std::index_sequence<kIndex...>) {
  constexpr std::array kernels{&interpret<FormatOf<kAllDataTypes[kIndex]>>...};
  return kernels[static_cast<std::size_t>(type)];
}

}  // namespace

bool run_kernel(std::optional<DataType> reduces, Block& block, Team team, const DeviceWorld& world,
                const ProgramHeader& program, const DeviceCall& call, std::uint32_t channel) {
  const Kernel kernel =
      reduces ? kernel_of(*reduces, std::make_index_sequence<std::size(kAllDataTypes)>())
              : interpret<NoFormat>;
  return kernel(block, team, world, program, call, channel);
}

bool run_exchange(Block& block, Team team, const DeviceWorld& world, const DeviceExchange& exchange,
                  std::uint32_t number) {
  HostPolicy policy(block.barrier, team);
  return Exchange<HostPolicy>(policy, block.exchange, world, exchange, number).run();
}

}  // namespace tutti::runtime::gpu

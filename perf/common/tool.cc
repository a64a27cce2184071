// The list of tools, in the order in which people know them.
#include "perf/common/tool.hpp"

namespace tutti::perf {

std::vector<const Tool*> tools() {
  return {&all_reduce_tool(), &all_gather_tool(), &reduce_scatter_tool(), &broadcast_tool(),
          &reduce_tool(),     &gather_tool(),     &scatter_tool(),        &alltoall_tool(),
          &alltoallv_tool(),  &sendrecv_tool(),   &hypercube_tool()};
}

}  // namespace tutti::perf

// hwloc_import.hpp: from what hwloc knows (this machine, or a saved XML file) to vertices and
// links. The only header of the hwloc corner; <hwloc.h> stays in its .cc files. Knows nothing of
// sysfs: NIC speeds come later (discover.cc).
#pragma once

#include <string>

#include "tutti/topology.hpp"

namespace tutti::topology {

// Vertices and links of one node called `node_name`. Reads the machine when `xml_path` is empty.
// Errors  system_error for the machine, corrupt_data for a file that hwloc does not accept.
Result<TopologyBuilder> import_hwloc(const std::string& node_name, const std::string& xml_path);

}  // namespace tutti::topology

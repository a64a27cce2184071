// xml.hpp: as much of XML as NCCL's topology files are made of: elements, attributes, comments.
// What such files never have (text between elements, CDATA, entities of their own) is an error.
//
// Knows nothing of machines.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::topology {

struct XmlElement {
  std::string name;
  int line = 1;  // where it begins
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  // Empty when there is none of that name; else the first one's value.
  std::string_view attribute(std::string_view name) const;
};

// The document's one outermost element. Safe on any input.
// Errors  corrupt_data, with the number of the line.
Result<XmlElement> parse_xml(std::string_view text);

// The name of that element without reading further; empty when there is none.
std::string_view xml_root_name(std::string_view text);

}  // namespace tutti::topology

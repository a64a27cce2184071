// names.hpp: reading back the names of topology enumerators, the inverse of the to_string functions
// in tutti/topology.hpp; and which names and texts a topology takes. Shared by all sources.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tutti/topology.hpp"

namespace tutti::topology {

std::optional<VertexKind> parse_vertex_kind(std::string_view name);
std::optional<LinkKind> parse_link_kind(std::string_view name);
std::optional<LinkSource> parse_link_source(std::string_view name);

// True for a name of a vertex and the key of an info: short, of [A-Za-z0-9_./:@+-].
bool is_plain_name(std::string_view name);

// True for the value of an info: short and printable ASCII.
bool is_plain_text(std::string_view text);

// Such a value of any text: printable ASCII without trailing space, cut. Nothing for nullptr.
std::string plain(const char* text);

}  // namespace tutti::topology

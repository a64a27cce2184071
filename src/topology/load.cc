// load.cc: one place that understands every way in which users name a topology.

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/file.hpp"
#include "topology/nccl_import.hpp"
#include "topology/xml.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{256} << 20;

Result<Topology> load_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMaxFileBytes)
    return Status(StatusCode::corrupt_data, fmt::format("'{}' is larger than 256 MiB", path));
  const Result<std::string> text = base::read_file(path, kMaxFileBytes);
  if (error || !text.ok())
    return Status(StatusCode::system_error, fmt::format("cannot read '{}'", path));
  const std::size_t first = text->find_first_not_of(" \t\r\n");
  const char begins = first == std::string::npos ? '\0' : (*text)[first];
  const bool is_nccls = begins == '<' && topology::xml_root_name(*text) == "system";
  Result<Topology> loaded = is_nccls        ? topology::import_nccl(*text)
                            : begins == '<' ? discover_topology({.hwloc_xml = path})
                            : begins == '{' ? topology_from_json(*text)
                                            : topology_from_text(*text);
  if (!loaded.ok()) return loaded.status().with_context(path);
  return loaded;
}

}  // namespace

Result<Topology> load_topology(std::string_view what) {
  if (what.empty() || what == "auto") return discover_topology();
  const std::string path(what);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return load_file(path);
  return parse_synthetic_topology(what);
}

}  // namespace tutti

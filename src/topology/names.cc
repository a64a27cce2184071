// names.cc: the words for kinds and sources, told once as tables that both directions read.

#include "topology/names.hpp"

#include <algorithm>
#include <string_view>

#include "base/assert.hpp"

namespace tutti {
namespace {

template <typename Enum>
struct Named {
  Enum value;
  std::string_view name;
};

constexpr Named<VertexKind> kVertexKinds[] = {
    {VertexKind::node, "node"},
    {VertexKind::package, "package"},
    {VertexKind::numa, "numa"},
    {VertexKind::cache, "cache"},
    {VertexKind::core, "core"},
    {VertexKind::gpu, "gpu"},
    {VertexKind::nic, "nic"},
    {VertexKind::pci_bridge, "pci_bridge"},
    {VertexKind::pci_device, "pci_device"},
    {VertexKind::gpu_switch, "gpu_switch"},
    {VertexKind::network_switch, "network_switch"},
};

constexpr Named<LinkKind> kLinkKinds[] = {
    {LinkKind::memory, "memory"},
    {LinkKind::nvlink, "nvlink"},
    {LinkKind::xgmi, "xgmi"},
    {LinkKind::pcie, "pcie"},
    {LinkKind::interconnect, "interconnect"},
    {LinkKind::network, "network"},
};

constexpr Named<LinkSource> kLinkSources[] = {
    {LinkSource::assumed, "assumed"},
    {LinkSource::given, "given"},
    {LinkSource::reported, "reported"},
    {LinkSource::measured, "measured"},
};

template <typename Enum, std::size_t n>
std::string_view name_in(const Named<Enum> (&table)[n], Enum value) {
  for (const auto& row : table)
    if (row.value == value) return row.name;
  TUTTI_ASSERT(false, "an enumerator without a name");
  return {};
}

template <typename Enum, std::size_t n>
std::optional<Enum> value_in(const Named<Enum> (&table)[n], std::string_view name) {
  for (const auto& row : table)
    if (row.name == name) return row.value;
  return std::nullopt;
}

}  // namespace

std::string_view to_string(VertexKind kind) { return name_in(kVertexKinds, kind); }
std::string_view to_string(LinkKind kind) { return name_in(kLinkKinds, kind); }
std::string_view to_string(LinkSource source) { return name_in(kLinkSources, source); }

namespace topology {

constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxTextBytes = 4096;

std::optional<VertexKind> parse_vertex_kind(std::string_view name) {
  return value_in(kVertexKinds, name);
}

std::optional<LinkKind> parse_link_kind(std::string_view name) {
  return value_in(kLinkKinds, name);
}

std::optional<LinkSource> parse_link_source(std::string_view name) {
  return value_in(kLinkSources, name);
}

bool is_plain_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@+-";
  return !name.empty() && name.size() <= kMaxNameBytes && name != "-" &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool is_plain_text(std::string_view text) {
  return text.size() <= kMaxTextBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string plain(const char* text) {
  constexpr std::size_t kLongest = 1000;
  std::string clean(text == nullptr ? "" : text);
  clean.resize(std::min(clean.size(), kLongest));
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c < 0x20 || c >= 0x7f; }, '?');
  clean.erase(clean.find_last_not_of(' ') + 1);
  return clean;
}

}  // namespace topology
}  // namespace tutti

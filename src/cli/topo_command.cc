// topo_command.cc: `tutti topo`. All knowledge of topologies is behind tutti/topology.hpp; here
// are only its options and where the result goes.

#include "cli/topo_command.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>

#include "tutti/topology.hpp"

namespace tutti::cli {
namespace {

struct Options {
  std::string file;
  std::string synthetic;
  std::string hwloc_xml;
  bool json = false;
  bool text = false;
};

Result<Topology> topology_for(const Options& options) {
  if (!options.file.empty()) return load_topology(options.file);
  if (!options.synthetic.empty()) return parse_synthetic_topology(options.synthetic);
  return discover_topology({.hwloc_xml = options.hwloc_xml});
}

int run_topo(const Options& options) {
  const Result<Topology> topology = topology_for(options);
  if (!topology.ok()) {
    fmt::print(stderr, "tutti topo: {}\n", topology.status().message());
    return 1;
  }
  const std::string out = options.json   ? to_json(*topology)
                          : options.text ? to_text(*topology)
                                         : describe(*topology);
  fmt::print("{}", out);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

void add_topo_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("topo", "Show this machine, or a saved or invented one");
  command->footer("Synthetic lines: " + synthetic_help());
  auto* source = command->add_option_group("source", "What to show; this machine without any");
  source->require_option(0, 1);
  source->add_option("--file", options->file, "Tutti's text or JSON, or XML of hwloc or NCCL")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  source->add_option("--synthetic", options->synthetic, "One line, such as \"4x8 nvlink=450\"")
      ->type_name("LINE");
  source->add_option("--hwloc-xml", options->hwloc_xml, "What lstopo has written")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  auto* form = command->add_option_group("form", "How to print it; as a tree without any");
  form->require_option(0, 1);
  form->add_flag("--json", options->json, "JSON");
  form->add_flag("--text", options->text, "Text that --file reads back unchanged");
  command->callback([options, &exit_code] { exit_code = run_topo(*options); });
}

}  // namespace tutti::cli

// A safetensors file, which people download from anywhere.
//
// Beyond not crashing: the tensors of what is accepted tile the data without overlap or holes, in
// extents whose product is their size, each name once; what we write of them reads again to the
// same; memory stays within a multiple of the text.
#include "training/model/safetensors.hpp"

#include <algorithm>

#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::training;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void check_tiling(std::string_view input, const SafetensorsContents& contents) {
  std::size_t total = 0;
  for (const SafetensorsEntry& entry : contents.entries) total += entry.bytes.size();
  std::uint64_t header = 0;
  std::memcpy(&header, input.data(), sizeof header);
  TUTTI_ASSERT(8 + header + total == input.size(), "the tensors are all of the data");
  for (std::size_t i = 0; i < contents.entries.size(); ++i) {
    const SafetensorsEntry& entry = contents.entries[i];
    TUTTI_ASSERT(i == 0 || contents.entries[i - 1].name < entry.name, "each name once, sorted");
    const char* begin = reinterpret_cast<const char*>(entry.bytes.data());
    TUTTI_ASSERT(begin >= input.data() + 8 + header &&
                     begin + entry.bytes.size() <= input.data() + input.size(),
                 "a tensor lies within the file");
    if (!entry.type) continue;
    std::uint64_t bytes = size_of(*entry.type);
    for (const std::int64_t extent : entry.extents) bytes *= static_cast<std::uint64_t>(extent);
    TUTTI_ASSERT(bytes == entry.bytes.size(), "extents give the size");
  }
}

// Lays the same tensors out anew and reads them from there.
void check_again(const SafetensorsContents& contents) {
  std::vector<SafetensorsPlan> plans;
  for (const SafetensorsEntry& entry : contents.entries) {
    if (!entry.type) return;
    plans.push_back({entry.name, *entry.type, entry.extents});
  }
  const auto layout = SafetensorsLayout::make(plans, contents.metadata);
  TUTTI_ASSERT(layout.ok(), "what was read can be written");
  std::string file = layout->header();
  file.resize(layout->file_bytes());
  for (const SafetensorsEntry& entry : contents.entries)
    std::copy_n(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size(),
                file.data() + layout->find(entry.name)->offset);
  const auto again = parse_safetensors(bytes_of(file));
  TUTTI_ASSERT(again.ok() && again->metadata == contents.metadata &&
                   again->entries.size() == contents.entries.size(),
               "what was written reads again");
  for (std::size_t i = 0; i < contents.entries.size(); ++i) {
    const SafetensorsEntry &a = contents.entries[i], &b = again->entries[i];
    TUTTI_ASSERT(a.name == b.name && a.type == b.type && a.extents == b.extents &&
                     std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()),
                 "each tensor reads again to the same");
  }
}

std::string with_length(std::string_view header, std::string_view data) {
  return Script().number(std::uint64_t{header.size()}).bytes(header).bytes(data);
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Result<SafetensorsContents> contents = SafetensorsContents();
  {
    const AllocationLimit limit(64 * input.size() + 16 * 1024);
    contents = parse_safetensors(bytes_of(input));
  }
  if (!contents.ok()) return;
  check_tiling(input, *contents);
  check_again(*contents);
}

std::vector<std::string> seeds() {
  const SafetensorsLayout layout =
      SafetensorsLayout::make({{"model.norm.weight", DataType::bfloat16, {4}},
                               {"lm_head.weight", DataType::float32, {2, 3}},
                               {"empty", DataType::float64, {0, 9}},
                               {"scalar", DataType::int8, {}}},
                              {{"format", "pt"}})
          .value();
  std::string whole = layout.header();
  whole.resize(layout.file_bytes(), 'x');
  return {whole, with_length("{}", ""),
          with_length(R"({"a":{"dtype":"F4","shape":[2,1],"data_offsets":[0,1]}})", "a"),
          with_length(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                      R"("\u00e9":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})",
                      "ab")};
}

}  // namespace tutti::fuzz

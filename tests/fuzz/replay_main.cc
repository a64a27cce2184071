// replay_main.cc: a fuzz target as an ordinary program, for any compiler and sanitizer.
//
//   replay_X [--mutations N]     runs the seeds, and N mutations of them that are always the same
//   replay_X FILE...             runs these inputs, such as those that a fuzzer saved
//   replay_X --write-seeds DIR   writes the seeds as files and prints the longest input's size
//
// It does not search: without a fuzzer's feedback the mutations only shake the near surroundings of
// the seeds, which keeps targets and seeds working between fuzzing sessions.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using Random = std::mt19937_64;  // the same numbers everywhere, unlike the distributions

std::size_t below(Random& random, std::size_t bound) {
  return bound == 0 ? 0 : static_cast<std::size_t>(random() % bound);
}

// One damage such as transmission, truncation, splicing or malice would do.
void damage(std::string& text, const std::vector<std::string>& others, Random& random) {
  constexpr std::string_view telling[] = {
      "-1", "0", "4294967295", "9223372036854775807", "1e999", "\n", "\"", "[", "}", "%"};
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t length = below(random, std::min<std::size_t>(text.size() - at, 16) + 1);
  const std::string& other = others[below(random, others.size())];
  switch (below(random, 6)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
      break;
    case 1:
      for (std::size_t i = at; i < at + length; ++i) text[i] = static_cast<char>(random());
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(at, text.substr(at, length));
      break;
    case 4:
      text.insert(at, telling[below(random, std::size(telling))]);
      break;
    default:
      text = text.substr(0, at) + other.substr(below(random, other.size() + 1));
  }
}

int run_seeds(int mutations) {
  const std::vector<std::string> all = seeds();
  if (all.empty()) return std::fputs("the target has no seeds\n", stderr), 1;
  for (const std::string& seed : all) {
    if (seed.size() > input_bytes_max()) return std::fputs("a seed is too long\n", stderr), 1;
    run(seed);
  }
  Random random(1);
  for (int i = 0; i < mutations; ++i) {
    std::string text = all[below(random, all.size())];
    for (std::size_t damages = 1 + below(random, 4); damages > 0; --damages)
      damage(text, all, random);
    text.resize(std::min(text.size(), input_bytes_max()));
    run(text);
  }
  std::printf("%zu seeds and %d mutations\n", all.size(), mutations);
  return 0;
}

int run_files(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) return std::fprintf(stderr, "cannot read %s\n", paths[i]), 1;
    run(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
    std::printf("%s: fine\n", paths[i]);
  }
  return 0;
}

int write_seeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : seeds()) {
    const std::string path = folder + "/seed" + std::to_string(number++);
    if (!(std::ofstream(path, std::ios::binary) << seed))
      return std::fprintf(stderr, "cannot write %s\n", path.c_str()), 1;
  }
  std::printf("%zu\n", input_bytes_max());
  return 0;
}

}  // namespace
}  // namespace tutti::fuzz

int main(int argc, char** argv) {
  using namespace tutti::fuzz;
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc == 3 && first == "--write-seeds") return write_seeds(argv[2]);
  if (argc > 1 && first != "--mutations") return run_files(argc - 1, argv + 1);
  int mutations = 1000;
  if (argc == 3) {
    const std::string_view text = argv[2];
    std::from_chars(text.data(), text.data() + text.size(), mutations);
  }
  return run_seeds(mutations);
}

// Files of tuning tables, and what ranks with different ones do.
#include "runtime/tuning.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.hpp"
#include "base/machine.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "runtime/host.hpp"

namespace tutti::runtime {
namespace {

constexpr std::string_view kOff = "off";
constexpr std::string_view kAnyMachine = "any";  // in a table for all kinds
constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;

Status cannot(const char* what, const std::string& path, std::string_view reason) {
  return Status(StatusCode::system_error,
                fmt::format("cannot {} the tuning table {}: {}", what, path, reason));
}

// A pipe or a device named by mistake must not be waited for.
Result<std::string> read_regular_file(const std::string& path) {
  struct stat facts {};
  const bool other = ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
  if (other) return cannot("read", path, std::strerror(S_ISDIR(facts.st_mode) ? EISDIR : EINVAL));
  Result<std::string> text = base::read_file(path, kMaxFileBytes);
  if (!text.ok()) return cannot("read", path, text.status().message());
  return text;
}

std::string shown(const HostCard& card) {
  return card.tuning == 0 ? fmt::format("no table ({})", card.tuning_source)
                          : fmt::format("{:016x} ({})", card.tuning, card.tuning_source);
}

}  // namespace

std::string default_tuning_path(const base::Environment& environment, const std::string& machine) {
  std::string folder(base::value_of(environment, "XDG_CACHE_HOME"));
  // The XDG specification has paths that are not absolute ignored.
  if (!folder.starts_with('/')) {
    folder = base::value_of(environment, "HOME");
    if (folder.empty()) return {};
    folder += "/.cache";
  }
  return fmt::format("{}/tutti/tuning-{:016x}.txt", folder, base::hash_of_text(machine));
}

Result<Tuning> read_tuning_file(const std::string& path, const std::string& machine) {
  const Result<std::string> text = read_regular_file(path);
  TUTTI_TRY(text);
  Result<collectives::TuningTable> table = collectives::tuning_from_text(*text);
  if (!table.ok()) return table.status().with_context(fmt::format("tuning table {}", path));
  if (table->machine != machine && table->machine != kAnyMachine)
    return Status(StatusCode::invalid_argument,
                  fmt::format("the tuning table {} was measured on '{}', but this machine is '{}'; "
                              "measure this one with `tutti tune`, set TUTTI_TUNING_FILE=off, or "
                              "write 'machine any' into the table if its numbers hold here too",
                              path, table->machine, machine));
  Tuning tuning;
  tuning.hash = collectives::tuning_hash(*table);
  tuning.table = std::make_shared<const collectives::TuningTable>(*std::move(table));
  tuning.source = path;
  return tuning;
}

Result<Tuning> find_tuning(const base::Config& config, const base::Environment& environment,
                           const base::Log& log) {
  if (config.tuning_file == kOff) return Tuning{nullptr, "TUTTI_TUNING_FILE=off", 0, false};
  const std::string machine = base::machine_kind();
  if (!config.tuning_file.empty()) {
    Result<Tuning> named = read_tuning_file(config.tuning_file, machine);
    if (!named.ok()) return named.status().with_context("TUTTI_TUNING_FILE");
    named->named = true;
    return named;
  }
  const std::string path = default_tuning_path(environment, machine);
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return Tuning();
  Result<Tuning> found = read_tuning_file(path, machine);
  if (found.ok()) return found;
  log.warn(fmt::format("{}; going on without it", found.status().message()));
  return Tuning();
}

Status write_tuning_file(const std::string& path, const collectives::TuningTable& table,
                         const std::string& comment) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (failed) return cannot("write", path, std::strerror(failed.value()));
  // Under another name first: ranks that start meanwhile read the old table or the new one.
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  std::ofstream file(draft, std::ios::trunc);
  file << comment << to_text(table);
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    return cannot("write", path, std::strerror(error));
  }
  return {};
}

Result<bool> agree_on_tuning(const std::vector<HostCard>& cards, bool named) {
  const auto other = std::find_if(cards.begin(), cards.end(), [&](const HostCard& card) {
    return card.tuning != cards[0].tuning;
  });
  if (other == cards.end()) return cards[0].tuning != 0;
  if (!named) return false;
  return Status(
      StatusCode::mismatch,
      fmt::format("ranks have different tuning tables: rank 0 has {}; rank {} has {}; give all of "
                  "them the same TUTTI_TUNING_FILE, or set it to off",
                  shown(cards[0]), other - cards.begin(), shown(*other)));
}

}  // namespace tutti::runtime

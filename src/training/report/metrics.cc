// metrics.cc: see metrics.hpp.
#include "training/report/metrics.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "training/report/text.hpp"

namespace tutti::training {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLineBytesMax = 1 << 16;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

struct Field {
  const char* key;
  double StepMetrics::*value;
};

constexpr std::array<Field, 7> kFields = {{
    {"loss", &StepMetrics::loss},
    {"lr", &StepMetrics::learning_rate},
    {"gradient_norm", &StepMetrics::gradient_norm},
    {"tokens_per_second", &StepMetrics::tokens_per_second},
    {"mfu", &StepMetrics::mfu},
    {"exposed_communication", &StepMetrics::exposed_communication},
    {"seconds", &StepMetrics::seconds},
}};

const Field* field_of(std::string_view key) {
  for (const Field& field : kFields)
    if (key == field.key) return &field;
  return nullptr;
}

Status corrupt(std::string text) { return Status(StatusCode::corrupt_data, std::move(text)); }

Result<double> number(const std::string& key, const Json& value) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) return corrupt(fmt::format("'{}' should be a number or null", key));
  return value.get<double>();
}

Result<std::int64_t> whole_number(const std::string& key, const Json& value) {
  if (value.is_number_integer()) {
    const auto whole = value.get<std::int64_t>();
    if (whole >= 0) return whole;
  }
  return corrupt(fmt::format("'{}' should be a whole number, not below 0", key));
}

// The loss itself, which the number next to it cannot say when it is none.
Status take_exact_loss(const Json& value, StepMetrics& metrics) {
  const auto loss = value.is_string() ? parse_exact(value.get_ref<const std::string&>())
                                      : std::optional<double>();
  if (!loss) return corrupt("'loss_hex' should be a text such as \"0x1.8p+1\"");
  metrics.loss = *loss;
  return {};
}

// Puts one key's value where it belongs.
Status take(const std::string& key, const Json& value, StepMetrics& metrics) {
  if (key == "step" || key == "tokens") {
    const auto whole = whole_number(key, value);
    if (whole.ok()) (key == "step" ? metrics.step : metrics.tokens) = *whole;
    return whole.status();
  }
  if (key == "loss_hex") return {};
  const auto known = number(key, value);
  if (!known.ok()) return known.status();
  if (const Field* field = field_of(key))
    metrics.*(field->value) = *known;
  else
    metrics.more.emplace_back(key, *known);
  return {};
}

// The lines of a metrics file with their places.
class MetricsLines {
 public:
  explicit MetricsLines(const std::string& path)
      : path_(path), file_(path, std::ios::binary), line_(kLineBytesMax, '\0') {}

  bool is_open() const { return file_.is_open(); }
  std::int64_t end() const { return end_; }  // of the lines so far

  // The next whole line; nothing at the end, or before a last line that is not whole.
  Result<std::optional<StepMetrics>> next() {
    file_.getline(line_.data(), static_cast<std::streamsize>(line_.size()));
    if (file_.eof()) return std::optional<StepMetrics>();
    ++number_;
    if (file_.fail()) return wrong("is too long for one of ours");
    const auto length = static_cast<std::size_t>(file_.gcount());  // with its end
    auto metrics = parse_metrics(std::string_view(line_).substr(0, length - 1));
    if (!metrics.ok()) return wrong(metrics.status().message());
    end_ += static_cast<std::int64_t>(length);
    return std::optional<StepMetrics>(*std::move(metrics));
  }

 private:
  Status wrong(std::string_view what) const {
    return corrupt(fmt::format("'{}', line {}: {}", path_, number_, what));
  }

  std::string path_;
  std::ifstream file_;
  std::string line_;
  int number_ = 0;
  std::int64_t end_ = 0;
};

// Where the lines of steps up to `step` end.
Result<std::int64_t> end_of_step(const std::string& path, std::int64_t step) {
  MetricsLines lines(path);
  if (!lines.is_open()) return file_error("read", path);
  while (true) {
    const std::int64_t end = lines.end();
    const auto metrics = lines.next();
    if (!metrics.ok()) return metrics.status();
    if (!metrics->has_value() || (*metrics)->step > step) return end;
  }
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  Json json;
  json["step"] = metrics.step;
  json["loss"] = metrics.loss;
  json["loss_hex"] = exact(metrics.loss);
  for (const Field& field : kFields) json[field.key] = metrics.*(field.value);
  json["tokens"] = metrics.tokens;
  for (const auto& [key, value] : metrics.more) json[key] = value;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<StepMetrics> parse_metrics(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return corrupt("a line of metrics should be one JSON object");
  StepMetrics metrics;
  if (!json.contains("step") || !json.contains("loss"))
    return corrupt("'step' or 'loss' is missing");
  for (const auto& [key, value] : json.items()) {
    const Status status = take(key, value, metrics);
    if (!status.ok()) return status;
  }
  if (const auto loss = json.find("loss_hex"); loss != json.end()) {
    const Status status = take_exact_loss(*loss, metrics);
    if (!status.ok()) return status;
  }
  return metrics;
}

Result<std::vector<StepMetrics>> read_metrics(const std::string& path) {
  MetricsLines lines(path);
  if (!lines.is_open()) return file_error("read", path);
  std::vector<StepMetrics> all;
  while (true) {
    auto metrics = lines.next();
    if (!metrics.ok()) return metrics.status();
    if (!metrics->has_value()) return all;
    all.push_back(std::move(**metrics));
  }
}

Result<MetricsWriter> MetricsWriter::open(const std::string& path) {
  auto file = OutputFile::open(path, OutputFile::Mode::append);
  if (!file.ok()) return file.status();
  MetricsWriter writer(*std::move(file));
  const Status status = writer.truncate_after(kNoLimit);
  if (!status.ok()) return status;
  return writer;
}

Status MetricsWriter::write(const StepMetrics& metrics) {
  return file_.write(to_json(metrics) + '\n');
}

Status MetricsWriter::truncate_after(std::int64_t step) {
  const auto end = end_of_step(file_.path(), step);
  if (!end.ok()) return end.status();
  return file_.truncate(static_cast<std::uint64_t>(*end));
}

}  // namespace tutti::training

// tensorboard.hpp: event files that TensorBoard shows, written without TensorFlow or protobuf.
//
// Knows scalars only. A resumed run begins a new file in the same folder, which TensorBoard reads
// as one run.
//
// Source  TensorFlow's record_writer.h (u64 length, masked crc32c of it, data, masked crc32c of it)
//         and event.proto: Event {1 wall_time, 2 step, 3 file_version, 5 summary {1 value {1 tag,
//         2 simple_value}}}; RFC 3720 for crc32c.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "training/files/output_file.hpp"
#include "training/report/metrics.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

struct Scalar {
  std::string tag;   // "train/loss": what is before the slash groups the charts
  double value = 0;  // stored as a float
};

std::uint32_t crc32c(std::string_view bytes);

// An Event message that opens a file. Units  seconds since 1970.
std::string encode_version_event(double wall_time_s);
// An Event message of some scalars of one step.
std::string encode_scalars_event(double wall_time_s, std::int64_t step,
                                 std::span<const Scalar> scalars);
// A message as a record of a file.
std::string frame_record(std::string_view message);

// Threading  one thread at a time. Errors  system_error, naming the path.
class EventWriter {
 public:
  // Makes the folder where it is missing, and a new file in it, whose name the time makes unique.
  static Result<EventWriter> create(const std::string& folder, double wall_time_s);

  Status write(double wall_time_s, std::int64_t step, std::span<const Scalar> scalars);
  // As train/loss, train/lr, speed/mfu, and so on; `more` as train/ and their names.
  Status write(double wall_time_s, const StepMetrics& metrics);

  const std::string& path() const { return file_.path(); }

 private:
  explicit EventWriter(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
};

// Seconds since 1970, now.
double wall_time_s();

}  // namespace tutti::training

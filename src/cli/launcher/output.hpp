// output.hpp: the way of a rank's output to the user: bytes become whole lines, lines get a prefix,
// and what the terminal or pipe does not take at once is kept.
//
// Lines of different ranks never mix: only whole lines reach the Sink. Knows nothing of processes.
#pragma once

#include <string>
#include <string_view>

namespace tutti::cli::launcher {

// Where lines go: stdout or stderr of the launcher. Never blocks for long, so that signals are
// heard while a pager has stopped reading.
class Sink {
 public:
  // `descriptor` stays the caller's.
  explicit Sink(int descriptor) : descriptor_(descriptor) {}

  // Takes a piece of `source`'s output, usually a line. A piece of another source starts on a line
  // of its own, even where the one before did not end its line.
  void append(const void* source, std::string_view text);

  // Writes what the descriptor takes without blocking.
  // Requires  poll() says that it is writable: a pipe then takes a page.
  void write_some();

  int descriptor() const { return descriptor_; }
  bool empty() const { return pending_.size() == written_; }
  bool full() const { return pending_.size() - written_ >= kMaxPending; }
  bool lost() const { return lost_; }  // nobody reads any more; what comes is dropped

 private:
  static constexpr std::size_t kMaxPending = 1 << 20;

  int descriptor_;
  std::string pending_;
  std::size_t written_ = 0;             // how much of pending_ has been written
  const void* open_line_of_ = nullptr;  // who has begun a line and not ended it
  bool lost_ = false;
};

// Cuts one rank's stream into lines and hands them on, each with the prefix.
class LineStream {
 public:
  LineStream(std::string prefix, Sink& sink) : prefix_(std::move(prefix)), sink_(&sink) {}

  void feed(std::string_view bytes);

  // The stream has ended: hands on a last line that has no end.
  void finish();

  bool can_take() const { return !sink_->full(); }

 private:
  // A program that writes this much without a line end does not write lines.
  static constexpr std::size_t kMaxLine = 1 << 20;

  void emit(std::string_view line);

  std::string prefix_;
  Sink* sink_;
  std::string partial_;
};

}  // namespace tutti::cli::launcher

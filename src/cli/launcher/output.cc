// output.cc: lines, prefixes and patience; see output.hpp.
#include "cli/launcher/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace tutti::cli::launcher {

void Sink::append(const void* source, std::string_view text) {
  if (lost_ || text.empty()) return;
  if (open_line_of_ != nullptr && open_line_of_ != source) pending_.push_back('\n');
  pending_.append(text);
  open_line_of_ = text.back() == '\n' ? nullptr : source;
}

void Sink::write_some() {
  // Not more than PIPE_BUF: a writable pipe may still block on more.
  const std::size_t size = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
  const ssize_t got = ::write(descriptor_, pending_.data() + written_, size);
  if (got > 0) {
    written_ += static_cast<std::size_t>(got);
  } else if (got < 0 && errno != EINTR && errno != EAGAIN) {
    lost_ = true;
    written_ = pending_.size();
  }
  if (empty()) {
    pending_.clear();
    written_ = 0;
  }
}

void LineStream::feed(std::string_view bytes) {
  for (std::size_t end = 0; (end = bytes.find('\n')) != std::string_view::npos;) {
    partial_.append(bytes.substr(0, end + 1));
    bytes.remove_prefix(end + 1);
    emit(partial_);
    partial_.clear();
  }
  partial_.append(bytes);
  if (partial_.size() >= kMaxLine) {
    emit(partial_);
    partial_.clear();
  }
}

void LineStream::finish() {
  if (partial_.empty()) return;
  emit(partial_);
  partial_.clear();
}

void LineStream::emit(std::string_view line) {
  sink_->append(this, prefix_);
  sink_->append(this, line);
}

}  // namespace tutti::cli::launcher

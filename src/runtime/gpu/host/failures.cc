// failures.cc: see failures.hpp.
#include "runtime/gpu/host/failures.hpp"

#include <fmt/format.h>

#include <string>

namespace tutti::runtime::gpu {
namespace {

StatusCode code_of(Why why) {
  switch (why) {
    case Why::none:
      return StatusCode::ok;
    case Why::aborted:
      return StatusCode::aborted;
    case Why::timeout:
      return StatusCode::timeout;
    case Why::mismatch:
      return StatusCode::mismatch;
    case Why::misaligned:
      return StatusCode::invalid_argument;
    case Why::too_large:
      return StatusCode::unsupported;
    case Why::peer_failed:
      return StatusCode::peer_lost;
  }
  return StatusCode::internal;
}

const char* text_of(Why why) {
  switch (why) {
    case Why::none:
      return "nothing failed";
    case Why::aborted:
      return "it was aborted";
    case Why::timeout:
      return "the deadline passed";
    case Why::mismatch:
      return "ranks made different calls";
    case Why::misaligned:
      return "a buffer does not lie at a multiple of its elements' size";
    case Why::too_large:
      return "a message does not fit a slot, or there are too many elements";
    case Why::peer_failed:
      return "a peer failed";
  }
  return "it failed in a way that is not known";
}

std::string awaited_text(const ErrorRecord& error) {
  switch (error.awaited) {
    case Awaited::nothing:
      return "";
    case Awaited::arrival:
      return fmt::format(" waiting for rank {} to enter the call", error.peer);
    case Awaited::data:
      return fmt::format(" waiting for data of rank {}", error.peer);
    case Awaited::room:
      return fmt::format(" waiting for room in the queue to rank {}", error.peer);
    case Awaited::grant:
      return fmt::format(" waiting for rank {} to grant its memory", error.peer);
    case Awaited::taken:
      return fmt::format(" waiting for rank {} to take what it was offered", error.peer);
  }
  return "";
}

// Where in its work a rank was.
std::string place_text(const ErrorRecord& error) {
  if (error.work == Work::collective)
    return fmt::format("step {} of slice {} on channel {}", error.step, error.slice, error.channel);
  return fmt::format(
      "{} rank {}, number {} of those that it began together, {} bytes of it through "
      "on lane {}",
      error.awaited == Awaited::data ? "receive from" : "send to", error.peer, error.step,
      error.slice, error.channel);
}

}  // namespace

Status status_of(const ErrorRecord& error, Rank rank) {
  const int culprit =
      error.culprit == 0 ? Status::kUnknownRank : static_cast<int>(error.culprit) - 1;
  const bool sizes_differ = error.work == Work::transfers && error.why == Why::mismatch;
  std::string text =
      fmt::format("rank {}, {}{}: {}", rank, place_text(error), awaited_text(error),
                  sizes_differ ? "sends and receives differ in size" : text_of(error.why));
  if (culprit >= 0)
    text += fmt::format("; rank {} {}", culprit,
                        error.why == Why::timeout ? "is missing" : "is where it began");
  return Status(code_of(error.why), text, culprit);
}

}  // namespace tutti::runtime::gpu

// notice.hpp: the word with which a rank whose communicator has failed tells its peers: what kind
// of failure, and with which rank it began. It travels as Signal::failed, beside the data, so that
// full queues do not hold it up; whoever hears it fails alike and passes it on, so that the first
// cause reaches all who are connected.
//
// The word comes from a peer: decoding makes sense of any bits.
#pragma once

#include <cstdint>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

struct Notice {
  StatusCode code = StatusCode::internal;
  Rank culprit = Status::kUnknownRank;

  static Notice of(const Status& status) { return {status.code(), status.culprit()}; }

  // The failure as it is to be reported here. `from`: who told it.
  Status told_by(Rank from) const;

  friend bool operator==(const Notice&, const Notice&) = default;
};

// Never 0, which is what peers see that have not failed.
std::uint64_t encode(const Notice& notice);

// Requires  word != 0.
Notice decode_notice(std::uint64_t word);

}  // namespace tutti::runtime

// region_line.hpp: how ranks of one host tell each other about memory that they map: messages of
// one size over a Unix socket, which never blocks.
//
// Its end is how a rank hears that a peer has nothing of its own mapped any more, however that came
// about. Knows nothing of devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "runtime/gpu/host/device.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

enum class RegionWord : std::uint32_t {
  hello = 1,  // the first one of a connection: who is calling, with the secret of who listens
  open,       // here is memory of mine: map it
  opened,     // done
  refused,    // it cannot be, and why
  close,      // let go of it
  close_now,  // the same where calls have failed: your kernels may not have left it yet
  closed,     // done
};

using RegionSecret = std::array<std::byte, 16>;

struct RegionNews {
  static constexpr std::uint32_t kMagic = 0x31726774;  // "tgr1"; the digit is the version
  std::uint32_t magic = kMagic;
  RegionWord word = RegionWord::hello;
  Rank from = 0;
  std::uint32_t region = 0;
  std::uint32_t generation = 0;
  std::uint32_t unused = 0;
  std::uint64_t address = 0;  // in its own process
  MemoryHandle handle = {};
  RegionSecret secret = {};
  std::array<char, 160> why = {};  // ends with a zero

  void set_why(const std::string& text);
};

// Where a rank is called, told to the ranks of its job only.
struct RegionDoor {
  std::array<char, 48> name = {};  // ends with a zero; empty: it has none
  RegionSecret secret = {};
};

// A name that nobody can guess, and another secret. Errors  system_error.
Result<RegionDoor> make_region_door();

// One end. Threading  one thread at a time.
class RegionLine {
 public:
  // Until there is a socket, what is said waits.
  void take(base::Descriptor socket) { socket_ = std::move(socket); }
  base::Descriptor give() { return std::move(socket_); }
  const base::Descriptor& socket() const { return socket_; }
  bool is_lost() const { return lost_; }  // nothing comes or goes any more
  bool has_more() const { return socket_.open() && !unsent_.empty(); }

  void say(const RegionNews& news);
  // As much of what was said as goes.
  void flush();
  // What has come; none: nothing has, or the line is lost.
  std::optional<RegionNews> hear();

 private:
  void lose();

  base::Descriptor socket_;
  bool lost_ = false;
  std::vector<std::byte> unsent_;
  std::vector<std::byte> heard_;  // of a message that has not come as a whole
};

}  // namespace tutti::runtime::gpu

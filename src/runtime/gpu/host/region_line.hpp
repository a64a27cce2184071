// region_line.hpp: how ranks of one host tell each other about memory that they map: messages of
// one size over a Unix socket, which never blocks. A descriptor may travel with one.
//
// Its end is how a rank hears that a peer has nothing of its own mapped any more, however that came
// about. Knows nothing of devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
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
  want,       // give me this part of it: it is of those that are mapped part by part
  part,       // here it is
  no_part,    // it cannot be had, and why
};

// By what a part is had.
enum class PartKind : std::uint32_t { none, descriptor, handle };

using RegionSecret = std::array<std::byte, 16>;

struct RegionNews {
  static constexpr std::uint32_t kMagic = 0x32726774;  // "tgr2"; the digit is the version
  std::uint32_t magic = kMagic;
  RegionWord word = RegionWord::hello;
  Rank from = 0;
  std::uint32_t region = 0;
  std::uint32_t generation = 0;
  std::uint32_t part = 0;  // of `open`: how many there are; 0: it is mapped as a whole
  PartKind kind = PartKind::none;
  std::uint32_t unused = 0;
  std::uint64_t address = 0;  // in its own process
  std::uint64_t bytes = 0;    // of the region, or of the part
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

struct HeardNews {
  RegionNews news;
  base::Descriptor descriptor;  // that came with it
};

// One end. Threading  one thread at a time.
class RegionLine {
 public:
  // Until there is a socket, what is said waits.
  void take(base::Descriptor socket) { socket_ = std::move(socket); }
  base::Descriptor give() { return std::move(socket_); }
  const base::Descriptor& socket() const { return socket_; }
  bool is_lost() const { return lost_; }  // nothing comes or goes any more
  bool has_more() const { return socket_.open() && !unsent_.empty(); }
  std::size_t unsent_descriptors() const;

  void say(const RegionNews& news, base::Descriptor descriptor = {});
  // As much of what was said as goes.
  void flush();
  // What has come; none: nothing has, or the line is lost.
  std::optional<HeardNews> hear();

 private:
  struct Unsent {
    RegionNews news;
    base::Descriptor descriptor;
    std::size_t sent = 0;  // bytes
  };
  enum class Got { some, nothing, end };

  void lose();
  std::ptrdiff_t send_some(const Unsent& message) const;
  Got receive_some();

  base::Descriptor socket_;
  bool lost_ = false;
  std::deque<Unsent> unsent_;
  std::vector<std::byte> heard_;       // of a message that has not come as a whole
  base::Descriptor heard_descriptor_;  // that came with it
};

}  // namespace tutti::runtime::gpu

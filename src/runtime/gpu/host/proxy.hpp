// proxy.hpp: carries what the kernels of a rank tell ranks of other hosts, and what those tell.
//
// Kernels do not know: where a peer is on another host, its inbox, its outbox and its notice lie in
// memory of this host that both processor and device see, laid out as all control memory is. The
// proxy looks at what the kernels store there, sends it as frames of a Transport, and stores what
// arrives. A slot is filled again only when the peer has told that it was read, so that there is
// always room for what arrives: no proxy waits for another.
//
// Payloads may lie in memory that is lent to the transport, a GPU's above all: then it moves them
// by itself, and the proxy only says from where and to where. A slot that the transport still reads
// counts as not read by the peer, and a message as not there until all of it is.
//
//   message   a slot: its number, its header, and as much payload as it has
//   progress  the call that the rank is in, and how many messages it has read
//   notice    that a call has failed, and whose fault it was
//   farewell  that the rank makes no further calls: its connection may end
//
// A state machine: it never blocks, spawns or reads a clock (carrier.hpp does). Whatever a peer
// sends is checked before anything is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/gpu/device_world.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime::gpu {

// Where the kernels of this rank meet one of another host.
struct ProxyLink {
  Rank peer = 0;
  std::byte* inbox = nullptr;       // what it tells them
  std::byte* outbox = nullptr;      // what they tell it
  std::uint64_t* notice = nullptr;  // the same, of failures
  std::byte* inbox_payloads =
      nullptr;  // of the slots of those; only kernels may touch what is lent
  std::byte* outbox_payloads = nullptr;
  LentPlace lent_inbox{};  // where those lie, of messages whose payloads come lent; none: not
  LentPlace lent_outbox{};
};

// Threading  one thread at a time.
class Proxy {
 public:
  // Makes what the transport has put into lent memory seen by kernels.
  using Flush = std::function<Status()>;

  // Requires  the links' memory is zeroed but for payloads; it and the transport outlive this.
  //           Both ends of a link say alike whether payloads that go one way are lent.
  // Errors    unsupported: a message does not fit a frame; those of the transport.
  static Result<Proxy> make(Transport& transport, const ControlShape& shape,
                            std::span<const ProxyLink> links, Flush flush = nullptr);

  // Carries what can be carried. True when anything moved.
  bool poll();

  // What this rank is to be told: notices of peers, and of those that are lost or that sent what
  // makes no sense. Each is given once.
  std::vector<std::uint64_t> take_notices();
  // The first of those that are lost or made no sense; ok: none is.
  const Status& failure() const { return failure_; }

  // The kernels make no further calls: what they have told is carried, then a farewell.
  void leave() { leaving_ = true; }
  // Whether the peers' hosts have that: the process may end.
  bool has_told_all() const;
  // Whether the peer has said farewell. Of one that is lost, too: nothing more comes from it.
  bool has_left(Rank peer) const;

 private:
  struct Channel {
    std::uint64_t carried = 0;     // messages to the peer
    std::uint64_t released = 0;    // those that the transport does not read any more
    std::uint64_t received = 0;    // messages from it
    std::uint64_t landed = 0;      // those that are there
    std::uint64_t freed_told = 0;  // how many of those it has been told were read
    std::uint64_t freed_seen = 0;  // how many of ours it has read
    std::uint64_t freed = 0;       // the same as kernels have been told
    std::uint64_t entered_told = 0;
    // By slot: what the transport's counts of lent frames and of fetches say when it has done with
    // it; 0: it has by now.
    std::vector<std::uint64_t> read_at;
    std::vector<std::uint64_t> fetched_at;
  };
  struct Link {
    ProxyLink at;
    Endpoint* endpoint = nullptr;
    std::vector<Channel> channels;
    std::uint64_t lent_frames = 0;
    std::uint64_t fetches = 0;
    unsigned quiet_polls = 0;
    bool notice_told = false;
    bool notice_heard = false;
    bool farewell_told = false;
    bool has_left = false;
    bool is_over = false;  // nothing goes either way any more
  };

  Proxy(Transport& transport, const ControlShape& shape, Flush flush)
      : transport_(&transport), shape_(shape), flush_(std::move(flush)) {}

  bool serve(Link& link);
  static void look_whether_it_is_there(Link& link);
  bool receive(Link& link);
  bool land(Link& link);
  bool release_slots(Link& link);
  static bool awaits_payloads(const Link& link);
  bool tell(Link& link);
  bool tell_notice(Link& link);
  bool tell_progress(Link& link, std::uint32_t channel);
  bool tell_messages(Link& link, std::uint32_t channel);
  bool tell_farewell(Link& link);
  bool send_message(Link& link, std::uint32_t channel, const SlotHeader& header);
  Result<bool> take(Link& link, const Frame& frame);
  Status check_message(const Link& link, std::uint32_t channel, const Frame& frame) const;
  Result<bool> take_message(Link& link, std::uint32_t channel, const Frame& frame);
  Status take_progress(Link& link, std::uint32_t channel, std::span<const std::byte> payload);
  Status take_notice(Link& link, std::span<const std::byte> payload);
  void lose(Link& link, const Status& why);

  Mailbox& told_by(const Link& link, std::uint32_t channel) const;
  Mailbox& told_to(const Link& link, std::uint32_t channel) const;

  Transport* transport_;
  ControlShape shape_;
  Flush flush_;
  std::vector<Link> links_;
  std::vector<std::uint64_t> notices_;
  Status failure_;
  bool leaving_ = false;
};

}  // namespace tutti::runtime::gpu

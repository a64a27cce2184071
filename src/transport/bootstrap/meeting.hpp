// meeting.hpp: how one rank meets the others and exchanges blobs with them, as a state machine over
// bytes.
//
// The ranks form a tree. Each calls its parent (parent_search.hpp says whom), both sides prove that
// they know the job's secret (handshake.hpp), and news of who has arrived goes up until rank 0
// knows of all ranks and says so. An exchange goes up the tree and down again. A failure goes from
// wherever it is noticed to all neighbours, and so to everybody.
//
// The driver (group.cc) tells what happened (accepted, called, received, closed, tick) and asks
// what to do. This never blocks, reads no clock and opens no socket, so tests and simulations feed
// it anything. Strangers (scanners, other programs, wrong secrets) are turned away and do not
// disturb the join; what a rank of this job gets wrong ends it, with a text for everybody.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/handshake.hpp"
#include "transport/bootstrap/message.hpp"
#include "transport/bootstrap/parent_search.hpp"
#include "transport/bootstrap/ranks.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

class Meeting {
 public:
  using LinkId = int;

  struct Identity {
    Rank rank = 0;
    int size = 1;
    std::string job;
    std::string zero_name;  // where rank 0 is looked for, for texts
  };

  Meeting(Identity self, Authenticator authenticator, NonceSource nonces, ParentSearch search);

  // ---- What happened ----

  void tick(std::int64_t now_ms);  // before anything else, and again when due_ms() has come
  void accepted(LinkId id, std::string origin);
  // The call was made; when it asks for an introduction, `mine` says where this rank listens.
  void called(LinkId id, const Call& call, const Listening& mine);
  void not_reached(const Status& why);
  void received(LinkId id, std::string_view bytes);
  void closed(LinkId id);

  // ---- What to do ----

  // A connection to make now. Then called() or not_reached() is due.
  std::optional<Call> next_call();
  // Send outgoing(id), say how much of it was sent; close the finished ones.
  std::string_view outgoing(LinkId id) const;
  void sent(LinkId id, std::size_t bytes);
  bool finished(LinkId id) const;
  bool all_sent() const;
  // True while new connections can make sense: nobody is awaited once all are there.
  bool open() const { return !ready_; }
  // After a failure: somebody will hear of it when a handshake that is under way, or the search
  // for a parent, has come to its end.
  bool answering() const;
  // After a failed join, at rank 0: some ranks have not heard of it, and may come to ask.
  bool awaits_more() const;
  // The stranger to close when too many wait; nothing while there is room.
  std::optional<LinkId> surplus_stranger() const;
  // When tick() has something to do; nothing when only news can bring it on.
  std::optional<std::int64_t> due_ms() const;

  // ---- The join, and exchanges ----

  bool joined() const { return ready_ && status_.ok(); }
  // True once there is somebody above who will say when a deadline has passed.
  bool attached() const { return self_.rank == 0 || parent_.has_value(); }

  // Starts the next all-gather. Requires  ready once, none in progress.
  void begin_exchange(std::uint64_t context, const std::string& mine);
  // The blobs by rank, once all are there.
  std::optional<std::vector<std::string>> take_exchanged();

  // Ends everything and tells every connected rank why.
  void fail(const Status& status);
  // Fails because the time is over; `within` says how long that was.
  void time_out(const std::string& within);
  const Status& status() const { return status_; }

  // Connections that were closed because they did not prove to be of this job.
  std::size_t turned_away() const { return turned_away_; }
  // Introductions that were asked of this rank.
  std::size_t introductions() const { return introduction_count_; }
  // Connections to other ranks.
  std::size_t degree() const;

 private:
  enum class Role {
    stranger,      // called us and has proved nothing
    child,         // below us
    asker,         // wants rank 0 to say who its parent is
    parent,        // called by us, above us
    introduction,  // rank 0, called by us to ask for a parent
    done,          // nothing more is expected of it
  };
  struct Link {
    explicit Link(Role what, std::string from = {})
        : role(what), origin(std::move(from)), parser(kStrangerBodyBytesMax) {}
    Role role;
    std::string origin;
    MessageParser parser;
    std::int64_t opened_ms = 0;
    bool heard = false;   // the first message of a handshake
    bool proven = false;  // the other side knows the secret
    ListenerHandshake listener;
    std::optional<CallerHandshake> caller;
    Rank rank = -1;
    RankSet ranks;  // of a child: it and those below
    std::deque<std::shared_ptr<const std::string>> outgoing;
    std::size_t front_sent = 0;
    bool closing = false;
  };
  // Parts of an exchange that this rank has not begun.
  struct Early {
    Rank from = 0;
    Blobs blobs;
  };

  // Hung up while nothing was expected of it, or of those below it.
  struct Lost {
    Rank rank = 0;
    RankSet ranks;
  };

  void handle(Link& link, const Message& message);
  void handle_stranger(Link& link, const Message& message);
  void handle_proof(Link& link, const std::string& body);
  void admit(Link& link);
  void handle_called(Link& link, const Message& message);
  void handle_challenge(Link& link, const std::string& body);
  void handle_welcome(Link& link, const std::string& body);
  void handle_child(Link& link, const Message& message);
  void handle_parent(Link& link, const Message& message);
  void handle_listening(Link& link, const std::string& body);
  void handle_assignment(Link& link, const std::string& body);
  void handle_arrived(Link& link, const std::string& body);
  void closed_child(const Link& link);
  void lost_while_calling(Link& link, const std::string& what);
  void secrets_differ(Link& link);
  void out_of_turn(Link& link);

  void adopt(Link& link);
  bool arrive(RankRun run, const std::string& where);
  void report_arrivals();
  void become_ready();

  void handle_blobs_from_child(Link& link, const std::string& body);
  void handle_blobs_from_parent(const std::string& body);
  bool fits(Rank from, const Blobs& blobs);
  void contribute(std::vector<Blob> parts);
  void send_contributions();
  void finish_exchange();

  void fail_alone(const Status& status);
  void refuse(Link& link, const Status& status);
  void send(Link& link, MessageKind kind, std::string_view body);
  void send_to_children(MessageKind kind, std::string_view body);
  void turn_away(Link& link);
  void note(const std::string& text);
  Link* parent_link() { return parent_ ? &links_.at(*parent_) : nullptr; }
  void attach_to(Link& link);
  std::string name_of(Rank rank) const;
  void wait_for_more();
  void flush_upwards();

  Identity self_;
  Authenticator authenticator_;
  NonceSource nonces_;
  ParentSearch search_;
  std::int64_t now_ms_ = 0;
  std::map<LinkId, Link> links_;
  std::optional<LinkId> parent_;
  Listening listening_;
  std::vector<Parent> introductions_;  // rank 0: itself, then those who asked, as they came
  std::size_t introduction_count_ = 0;

  RankSet known_;       // this rank and all below it
  RankSet unreported_;  // those of them that the parent has not heard of
  std::optional<std::int64_t> unsent_since_ms_;
  bool ready_ = false;

  bool exchanging_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t context_ = 0;
  RankSet contributed_;              // of known_, to the exchange in progress or the next one
  std::vector<Blob> contributions_;  // not sent upwards yet
  std::vector<Early> early_;
  std::vector<std::string> blobs_;
  RankSet blobs_here_;
  std::optional<std::vector<std::string>> exchanged_;
  std::vector<Lost> lost_;

  std::size_t turned_away_ = 0;
  std::vector<std::string> notes_;
  Status status_;
  RankSet told_;            // not of known_, but heard of the failure
  bool owes_news_ = false;  // failed before it had a parent, which shall hear why
};

}  // namespace tutti::transport

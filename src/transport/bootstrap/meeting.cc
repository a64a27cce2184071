// meeting.cc: links, handshakes and the join; see meeting.hpp.
#include "transport/bootstrap/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.hpp"

namespace tutti::transport {
namespace {

constexpr std::int64_t kHandshakeMs = 5000;
constexpr std::int64_t kGatherMs = 20;  // news wait so long for more before they go up
constexpr std::size_t kNotesMax = 8;
constexpr std::size_t kStrangersMin = 256;

}  // namespace

Meeting::Meeting(Identity self, Authenticator authenticator, NonceSource nonces,
                 ParentSearch search)
    : self_(std::move(self)),
      authenticator_(std::move(authenticator)),
      nonces_(std::move(nonces)),
      search_(std::move(search)),
      ready_(self_.size == 1) {
  TUTTI_ASSERT(self_.size >= 1 && self_.rank >= 0 && self_.rank < self_.size, "no such rank");
  known_.add(self_.rank);
  if (self_.rank == 0) introductions_.push_back({});
}

// ---- Links ----

void Meeting::tick(std::int64_t now_ms) {
  now_ms_ = now_ms;
  for (auto& [id, link] : links_)
    if (link.role == Role::stranger && !link.closing && now_ms - link.opened_ms > kHandshakeMs)
      turn_away(link);
  if (unsent_since_ms_ && now_ms - *unsent_since_ms_ >= kGatherMs) flush_upwards();
}

std::optional<std::int64_t> Meeting::due_ms() const {
  std::optional<std::int64_t> due;
  if (self_.rank != 0 && !parent_) due = search_.due_ms();
  if (!unsent_since_ms_) return due;
  const std::int64_t flush = *unsent_since_ms_ + kGatherMs;
  return due ? std::min(*due, flush) : flush;
}

void Meeting::accepted(LinkId id, std::string origin) {
  const auto [place, fresh] = links_.try_emplace(id, Role::stranger, std::move(origin));
  TUTTI_ASSERT(fresh, "a link was opened twice");
  place->second.opened_ms = now_ms_;
}

std::optional<Call> Meeting::next_call() {
  if (self_.rank == 0 || parent_ || !(status_.ok() || owes_news_)) return std::nullopt;
  return search_.next(now_ms_);
}

void Meeting::called(LinkId id, const Call& call, const Listening& mine) {
  const bool introduction = call.purpose == CallPurpose::introduce;
  const auto [place, fresh] =
      links_.try_emplace(id, introduction ? Role::introduction : Role::parent);
  TUTTI_ASSERT(fresh, "a link was opened twice");
  Link& link = place->second;
  link.rank = call.to;
  link.caller.emplace(Hello{call.purpose, self_.rank, call.to, self_.size, self_.job, nonces_()});
  if (introduction) listening_ = mine;
  send(link, MessageKind::hello, encode_hello(link.caller->hello()));
}

void Meeting::not_reached(const Status& why) { search_.failed(why, now_ms_); }

void Meeting::received(LinkId id, std::string_view bytes) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.closing) return;
  link.parser.append(bytes);
  while (!link.closing) {
    const auto next = link.parser.next();
    if (next.ok() && !next->has_value()) return;
    if (next.ok()) {
      handle(link, **next);
    } else if (link.role == Role::stranger) {
      turn_away(link);
    } else if (link.proven) {
      return fail(next.status().with_context(fmt::format("rank {}", link.rank)));
    } else if (link.rank == 0) {
      link.closing = true;
      return fail_alone(
          Status(StatusCode::corrupt_data,
                 fmt::format("what answers at {} is not rank 0 of a Tutti job; choose "
                             "another port, or look who listens there",
                             self_.zero_name)));
    } else {
      lost_while_calling(link, "answered with something that Tutti does not say");
    }
  }
}

void Meeting::handle(Link& link, const Message& message) {
  if (link.role == Role::stranger) return handle_stranger(link, message);
  if (!link.proven) return handle_called(link, message);
  if (message.kind == MessageKind::failure) return fail(parse_failure(message.body));
  if (link.role == Role::child) return handle_child(link, message);
  if (link.role == Role::parent) return handle_parent(link, message);
  if (link.role == Role::asker && message.kind == MessageKind::listening)
    return handle_listening(link, message.body);
  if (link.role == Role::introduction && message.kind == MessageKind::parent)
    return handle_assignment(link, message.body);
  out_of_turn(link);
}

void Meeting::out_of_turn(Link& link) {
  link.closing = true;
  fail(Status(StatusCode::corrupt_data,
              fmt::format("rank {} sent a message out of turn", link.rank), link.rank));
}

void Meeting::closed(LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link link = std::move(found->second);
  links_.erase(found);
  if (parent_ == id) parent_.reset();
  if (link.role == Role::stranger && !link.closing) ++turned_away_;
  const bool calling = link.role == Role::parent || link.role == Role::introduction;
  if (calling && !link.proven && (status_.ok() || owes_news_))
    return lost_while_calling(link, "hung up");
  if (!status_.ok()) return;
  if (link.role == Role::child) return closed_child(link);
  if (!calling) return;
  if (ready_ && !exchanging_) {
    link.ranks.add(link.rank);
    lost_.push_back({link.rank, std::move(link.ranks)});
    return;
  }
  fail(Status(StatusCode::peer_lost, fmt::format("{} hung up", name_of(link.rank)), link.rank));
}

void Meeting::closed_child(const Link& link) {
  if (!ready_)
    return fail(Status(StatusCode::peer_lost,
                       fmt::format("rank {} joined and then hung up", link.rank), link.rank));
  if (exchanging_ && !contributed_.contains_all(link.ranks))
    return fail(
        Status(StatusCode::peer_lost, fmt::format("rank {} hung up", link.rank), link.rank));
  lost_.push_back({link.rank, link.ranks});
}

// Nothing was agreed with it, so the search goes on.
void Meeting::lost_while_calling(Link& link, const std::string& what) {
  link.role = Role::done;
  link.closing = true;
  search_.failed(Status(StatusCode::peer_lost, fmt::format("{} {}", name_of(link.rank), what)),
                 now_ms_);
}

std::string_view Meeting::outgoing(LinkId id) const {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.outgoing.empty()) return {};
  return std::string_view(*found->second.outgoing.front()).substr(found->second.front_sent);
}

void Meeting::sent(LinkId id, std::size_t bytes) {
  Link& link = links_.at(id);
  link.front_sent += bytes;
  if (link.front_sent < link.outgoing.front()->size()) return;
  link.outgoing.pop_front();
  link.front_sent = 0;
}

bool Meeting::finished(LinkId id) const {
  const auto found = links_.find(id);
  return found == links_.end() || (found->second.closing && found->second.outgoing.empty());
}

bool Meeting::all_sent() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& each) { return each.second.outgoing.empty(); });
}

bool Meeting::answering() const {
  return owes_news_ || std::any_of(links_.begin(), links_.end(), [](const auto& each) {
           return each.second.heard && !each.second.proven && !each.second.closing;
         });
}

bool Meeting::awaits_more() const {
  // After a deadline, whoever is not there is late enough to find that out alone.
  return self_.rank == 0 && !ready_ && status_.code() != StatusCode::timeout &&
         known_.count() + told_.count() < static_cast<std::size_t>(self_.size);
}

std::optional<Meeting::LinkId> Meeting::surplus_stranger() const {
  const auto stranger = [](const Link& link) { return link.role == Role::stranger; };
  std::size_t strangers = 0;
  const Link* oldest = nullptr;
  std::optional<LinkId> which;
  for (const auto& [id, link] : links_) {
    if (!stranger(link)) continue;
    ++strangers;
    if (oldest != nullptr && oldest->opened_ms <= link.opened_ms) continue;
    oldest = &link;
    which = id;
  }
  const std::size_t most = std::max(kStrangersMin, 2 * static_cast<std::size_t>(self_.size));
  return strangers > most ? which : std::nullopt;
}

std::size_t Meeting::degree() const {
  return static_cast<std::size_t>(std::count_if(links_.begin(), links_.end(), [](const auto& each) {
    const Link& link = each.second;
    return link.proven && (link.role == Role::child || link.role == Role::parent);
  }));
}

// ---- Those who call ----

void Meeting::handle_stranger(Link& link, const Message& message) {
  if (ready_) return turn_away(link);  // nobody is missing: it belongs to another meeting
  if (!link.heard && message.kind == MessageKind::hello) {
    const bool is_hello = link.listener.hear(message.body, nonces_);
    const Hello& hello = link.listener.hello();
    // What was meant for another rank was led astray, or sent back to where it came from: whoever
    // proved anything about it would prove it in the other's name.
    link.heard = is_hello && hello.to == self_.rank &&
                 (hello.purpose == CallPurpose::attach || self_.rank == 0);
    if (link.heard) return send(link, MessageKind::challenge, link.listener.challenge());
  } else if (link.heard && message.kind == MessageKind::proof) {
    return handle_proof(link, message.body);
  }
  turn_away(link);
}

void Meeting::handle_proof(Link& link, const std::string& body) {
  const Hello& hello = link.listener.hello();
  if (!link.listener.accepts(body, authenticator_)) {
    note(fmt::format("a process at {} that calls itself rank {} has another job secret",
                     link.origin, hello.from));
    ++turned_away_;
    return refuse(link, Status(StatusCode::invalid_argument, "the job secrets differ"));
  }
  link.proven = true;
  link.rank = hello.from;
  // Also before a refusal, which would not be believed otherwise.
  send(link, MessageKind::welcome, link.listener.welcome(authenticator_));
  if (hello.job != self_.job) {
    note(fmt::format("rank {} of another job, '{}', came from {}", hello.from, hello.job,
                     link.origin));
    return refuse(link, Status(StatusCode::mismatch,
                               fmt::format("this is job '{}', not '{}'", self_.job, hello.job)));
  }
  admit(link);
}

// From here on it is a process of our job: what it gets wrong, waiting does not mend.
void Meeting::admit(Link& link) {
  const Hello& hello = link.listener.hello();
  if (!status_.ok()) {
    if (!known_.contains(hello.from)) told_.add(hello.from);
    return refuse(link, status_);
  }
  Status wrong;
  const bool introduce = hello.purpose == CallPurpose::introduce;
  if (hello.size != self_.size)
    wrong = Status(StatusCode::mismatch,
                   fmt::format("rank {} was started with world size {}, rank {} with {}",
                               hello.from, hello.size, self_.rank, self_.size),
                   hello.from);
  else if (hello.from < 0 || hello.from >= self_.size)
    wrong = Status(StatusCode::mismatch,
                   fmt::format("there is no rank {} in a world of {}", hello.from, self_.size));
  else if (known_.contains(hello.from))
    wrong = Status(StatusCode::mismatch,
                   fmt::format("two processes were started as rank {} (the second at {})",
                               hello.from, link.origin),
                   hello.from);
  if (!wrong.ok()) {
    refuse(link, wrong);
    return fail(wrong);
  }
  if (introduce)
    link.role = Role::asker;
  else
    adopt(link);
}

void Meeting::adopt(Link& link) {
  link.role = Role::child;
  link.parser.set_body_bytes_max(kMemberBodyBytesMax);
  link.ranks.add(link.rank);
  arrive({link.rank, link.rank}, "at " + link.origin);
}

// Each answer refers to those who asked before, as the binomial tree refers to smaller ranks: so it
// can be given at once, and however many ask, none gets many children by it.
void Meeting::handle_listening(Link& link, const std::string& body) {
  const auto listening = parse_listening(body);
  if (!listening) return out_of_turn(link);
  const auto index = static_cast<Rank>(introductions_.size());
  introductions_.push_back({link.rank, listening->host, listening->port});
  ++introduction_count_;
  const Parent& parent = introductions_[static_cast<std::size_t>(binomial_parent(index))];
  if (parent.rank == 0 || listening->directly) {
    send(link, MessageKind::parent, encode_parent({}));
    return adopt(link);
  }
  send(link, MessageKind::parent, encode_parent(parent));
  link.role = Role::done;
  link.closing = true;
}

void Meeting::handle_child(Link& link, const Message& message) {
  if (message.kind == MessageKind::arrived && !ready_) return handle_arrived(link, message.body);
  if (message.kind == MessageKind::blobs && ready_)
    return handle_blobs_from_child(link, message.body);
  out_of_turn(link);
}

void Meeting::handle_arrived(Link& link, const std::string& body) {
  const auto runs = parse_arrived(body, self_.size);
  if (!runs)
    return fail(Status(StatusCode::corrupt_data,
                       fmt::format("rank {} told of ranks that make no sense", link.rank),
                       link.rank));
  for (const RankRun& run : *runs) {
    link.ranks.add(run);
    if (!arrive(run, fmt::format("below rank {}", link.rank))) return;
  }
}

// ---- Those whom we call ----

void Meeting::handle_called(Link& link, const Message& message) {
  if (message.kind == MessageKind::challenge && !link.heard)
    return handle_challenge(link, message.body);
  if (message.kind == MessageKind::welcome && link.heard) return handle_welcome(link, message.body);
  // Until it has proved itself, its only believable complaint is that we did not convince it.
  if (message.kind == MessageKind::failure && link.heard) return secrets_differ(link);
  lost_while_calling(link, "answered out of turn");
}

void Meeting::handle_challenge(Link& link, const std::string& body) {
  const auto proof = link.caller->prove(body, authenticator_);
  if (!proof) return lost_while_calling(link, "sent a challenge of a wrong length");
  link.heard = true;
  send(link, MessageKind::proof, *proof);
}

void Meeting::handle_welcome(Link& link, const std::string& body) {
  if (!link.caller->accepts(body, authenticator_)) return secrets_differ(link);
  link.proven = true;
  link.parser.set_body_bytes_max(kMemberBodyBytesMax);
  if (!status_.ok()) {
    owes_news_ = false;
    return refuse(link, status_);
  }
  if (link.role == Role::introduction) {
    search_.introduced();
    listening_.directly = search_.directly();
    return send(link, MessageKind::listening, encode_listening(listening_));
  }
  attach_to(link);
}

void Meeting::handle_assignment(Link& link, const std::string& body) {
  const auto parent = parse_parent(body);
  if (!parent || parent->rank < 0 || parent->rank >= self_.size || parent->rank == self_.rank)
    return out_of_turn(link);
  if (parent->rank != 0) {
    link.role = Role::done;
    link.closing = true;
    return search_.assigned(*parent, now_ms_);
  }
  link.role = Role::parent;
  attach_to(link);
}

void Meeting::attach_to(Link& link) {
  search_.found();
  for (const auto& [id, each] : links_)
    if (&each == &link) parent_ = id;
  wait_for_more();
}

void Meeting::handle_parent(Link& link, const Message& message) {
  if (message.kind == MessageKind::ready && !ready_) return become_ready();
  if (message.kind == MessageKind::blobs && ready_ && exchanging_)
    return handle_blobs_from_parent(message.body);
  out_of_turn(link);
}

void Meeting::secrets_differ(Link& link) {
  link.closing = true;
  fail_alone(
      Status(StatusCode::invalid_argument,
             fmt::format("rank {} and {} have different job secrets; give all ranks the same "
                         "TUTTI_JOB_SECRET_FILE (`tutti run` makes one by itself)",
                         self_.rank, name_of(link.rank))));
}

// ---- Who has arrived ----

bool Meeting::arrive(RankRun run, const std::string& where) {
  if (const Rank twice = known_.add(run); twice >= 0) {
    fail(Status(StatusCode::mismatch,
                fmt::format("two processes were started as rank {} (the second {})", twice, where),
                twice));
    return false;
  }
  if (self_.rank == 0) {
    if (known_.count() == static_cast<std::size_t>(self_.size)) become_ready();
    return true;
  }
  unreported_.add(run);
  wait_for_more();
  return true;
}

// What is complete goes up at once; else it waits a little for more of the same, so that a rank
// sends few messages however many are below it.
void Meeting::wait_for_more() {
  const bool something = ready_ ? !contributions_.empty() : !unreported_.empty();
  if (!something || self_.rank == 0) return;
  const bool complete = ready_ ? contributed_.contains_all(known_)
                               : known_.contains_all(binomial_subtree(self_.rank, self_.size));
  if (complete) return flush_upwards();
  if (!unsent_since_ms_) unsent_since_ms_ = now_ms_;
}

void Meeting::flush_upwards() {
  if (parent_link() == nullptr) {
    unsent_since_ms_.reset();  // attaching looks again
    return;
  }
  unsent_since_ms_.reset();
  if (ready_)
    send_contributions();
  else
    report_arrivals();
}

void Meeting::report_arrivals() {
  while (!unreported_.empty())
    send(*parent_link(), MessageKind::arrived, encode_arrived(unreported_));
}

void Meeting::become_ready() {
  ready_ = true;
  unsent_since_ms_.reset();
  send_to_children(MessageKind::ready, {});
  for (auto& [id, link] : links_)
    if (link.role == Role::stranger && !link.closing) turn_away(link);
}

// ---- Failures ----

void Meeting::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  owes_news_ = self_.rank != 0 && !parent_ && !ready_;
  search_.hurry();
  const std::string body = encode_failure(status);
  for (auto& [id, link] : links_) {
    if (link.role == Role::stranger && !ready_) continue;  // will be told when it has proved itself
    if (link.caller && !link.proven && !link.closing) continue;  // likewise, when it has
    if (link.proven && !link.closing) send(link, MessageKind::failure, body);
    link.closing = true;
  }
}

// There is nobody above who would believe it, or who could be reached.
void Meeting::fail_alone(const Status& status) {
  fail(status);
  owes_news_ = false;
}

void Meeting::time_out(const std::string& within) {
  if (self_.rank != 0) {
    const Link* parent = parent_link();
    if (parent == nullptr)
      return fail_alone(
          Status(StatusCode::timeout,
                 fmt::format("rank 0 did not answer rank {} at {} within {} (last: {}); is "
                             "it running, and are address and port right?",
                             self_.rank, self_.zero_name, within, search_.last().message()),
                 0));
    return fail(Status(StatusCode::timeout,
                       fmt::format("rank {} heard nothing from {} within {}", self_.rank,
                                   name_of(ready_ ? parent->rank : 0), within),
                       ready_ ? parent->rank : 0));
  }
  std::string notes;
  for (const std::string& each : notes_) notes += "; " + each;
  std::vector<Rank> missing = (ready_ ? contributed_ : known_).missing_below(self_.size);
  std::vector<Rank> behind;
  if (ready_) {
    // A rank that takes no part passes nothing on either.
    const std::vector<Rank> all = missing;
    std::erase_if(missing, [&](Rank rank) {
      return std::binary_search(all.begin(), all.end(), binomial_parent(rank));
    });
    std::set_difference(all.begin(), all.end(), missing.begin(), missing.end(),
                        std::back_inserter(behind));
    if (!behind.empty()) notes += "; nothing came from " + list_of_ranks(behind) + " behind";
  }
  fail(Status(StatusCode::timeout,
              fmt::format("{} did not {} within {}{}", list_of_ranks(missing),
                          ready_ ? "take part in an exchange" : "arrive", within, notes),
              missing.empty() ? Status::kUnknownRank : missing.front()));
}

void Meeting::refuse(Link& link, const Status& status) {
  send(link, MessageKind::failure, encode_failure(status));
  link.role = Role::done;
  link.closing = true;
}

void Meeting::turn_away(Link& link) {
  ++turned_away_;
  link.closing = true;  // without an answer: strangers need none
}

void Meeting::note(const std::string& text) {
  if (notes_.size() < kNotesMax) notes_.push_back(text);
}

// ---- Helpers ----

void Meeting::send(Link& link, MessageKind kind, std::string_view body) {
  link.outgoing.push_back(std::make_shared<const std::string>(encode_message(kind, body)));
}

void Meeting::send_to_children(MessageKind kind, std::string_view body) {
  const auto message = std::make_shared<const std::string>(encode_message(kind, body));
  for (auto& [id, link] : links_)
    if (link.role == Role::child && !link.closing) link.outgoing.push_back(message);
}

std::string Meeting::name_of(Rank rank) const {
  return rank == 0 ? "rank 0 at " + self_.zero_name : fmt::format("rank {}", rank);
}

}  // namespace tutti::transport

"""The seeded bugs of tools/bug-hunt: mistakes that somebody could make in the library, kept as
edits, so that the simulated worlds (`tutti chaos`) can be shown to find them.

Each bug replaces `old`, which occurs exactly once in its file, with `new`. `worlds` are the flags
of the worlds that should find it; the test bugs.check sees that `old` is still there. The worlds
themselves (src/cli/chaos_*, src/transport/sim) are the judge and hold no bugs.
"""
import dataclasses

CALLS = ""  # without faults
FAULTS = "--faults"
MISMATCHES = "--mismatches"
STRICT = "--mismatches --strict"


@dataclasses.dataclass(frozen=True)
class Bug:
    name: str
    what: str
    worlds: str
    file: str
    old: str
    new: str


EXECUTOR = "src/runtime/executor.cc"
CUT = "src/runtime/executor_cut.cc"
STEPS = "src/runtime/executor_steps.cc"
STORES = "src/runtime/executor_stores.cc"
SHORT = "src/runtime/executor_short.cc"
PROGRAM = "src/runtime/call_program.cc"
LOWERED = "src/collectives/lowered.hpp"
ARRIVAL = "src/runtime/arrival.cc"
CHECK = "src/runtime/strict.cc"
NOTICE = "src/runtime/notice.cc"
AGREEMENT = "src/runtime/membership/agreement.cc"
MAILBOX = "src/runtime/membership/mailbox.cc"
MEMBERSHIP = "src/runtime/membership/membership.cc"
STATE = "src/runtime/communicator_state.cc"
AFTER_FAILURE = "src/runtime/communicator_membership.cc"
RECOVERY = "src/runtime/communicator_membership.cc"
CHECKED = "src/transport/checked/endpoint.cc"

BUGS = [
    # ---- Steps ----
    Bug("grant-not-counted", "forgets that it has granted memory", CALLS, STEPS,
        "    ++s.received[at(Way::push)];\n", ""),
    Bug("produced-off-by-one", "takes pushed data before it is there", CALLS, STEPS,
        "signalled(Signal::produced) > number_received",
        "signalled(Signal::produced) >= number_received"),
    Bug("offer-off-by-one", "reads a peer's memory before it is offered", CALLS, STEPS,
        "signalled(Signal::offered) > number_received",
        "signalled(Signal::offered) >= number_received"),
    Bug("taken-off-by-one", "takes memory back before the peer has read it", CALLS, STEPS,
        "signalled(Signal::taken) <= number_sent", "signalled(Signal::taken) < number_sent"),
    Bug("dependency-half-done", "a step counts as done once it may begin", CALLS, STEPS,
        "if (phase == Phase::complete) continue;",
        "if (phase == Phase::complete || phase == Phase::granted) continue;"),
    Bug("last-dependency-ignored", "a step does not wait for its last dependency", CALLS, STEPS,
        "d < attempt.step.depends_end; ++d", "d + 1 < attempt.step.depends_end; ++d"),
    Bug("grant-before-dependencies", "takes steps, and grants memory that earlier ones still use",
        CALLS, STEPS,
        "if (!dependencies_complete(attempt) || !grant_landings(attempt)) return false;\n",
        "if (!grant_landings(attempt)) return false;\n"),
    Bug("pushed-by-one-who-cannot-share", "who sent at once is expected to store as well", CALLS,
        LOWERED, " && receiver.addressable(touched) && sender.shares_all();",
        " && receiver.addressable(touched);"),
    Bug("staged-before-known", "sends slices before their number of messages is known", CALLS,
        STEPS,
        "      if (attempt.slice > 0 && !peers_[destination.stream].settled) return false;\n",
        ""),
    Bug("messages-overtake", "sends messages of a connection in any order", CALLS, STEPS,
        "if (destination.way == Way::undecided || !is_next_to_send(attempt, destination)) return",
        "if (destination.way == Way::undecided) return"),
    Bug("far-stores-forgotten", "stores past the caches only what is the rank's own", CALLS, STORES,
        "if (apart) {", "if (apart) { far_pointers_.clear();"),
    Bug("average-divided-twice", "divides at every step of a reduction", CALLS, STORES,
        "const bool divides = finish && call_", "const bool divides = call_"),
    Bug("short-step-waits-for-none", "a step of a small call waits for no other", CALLS, SHORT,
        "    if (!may_begin(step)) return false;\n", ""),
    Bug("short-messages-overtake", "a small call sends messages in any order", CALLS, SHORT,
        "  if (s.sent[at(way)] != destination.place) return false;\n", ""),
    Bug("short-not-taken", "a small call takes memory back before the peer has read it", CALLS,
        SHORT,
        "signalled(Signal::taken) <= s.sent_before", "signalled(Signal::taken) < s.sent_before"),
    # ---- The life of a call ----
    Bug("window-not-skipped", "does not skip slices that the window slid past", CALLS, EXECUTOR,
        "slice = std::max(slice + 1, c.first_slice);", "++slice;"),
    Bug("phases-not-reset", "a slice begins with what the one before it left", CALLS, EXECUTOR,
        "    std::fill_n(c.phases.begin() + static_cast<std::ptrdiff_t>(slot * steps), steps,\n"
        "                Phase::waiting);\n", ""),
    Bug("sent-not-advanced", "numbers of sent messages ignore the slices of earlier calls", CALLS,
        EXECUTOR, "sent_before += slices_ * peer.sends.size();",
        "sent_before += peer.sends.size();"),
    Bug("received-not-advanced", "numbers of received messages start anew with each call", CALLS,
        EXECUTOR, "        s.received_before += slices_ * peer.receives.size();\n", ""),
    Bug("numbers-not-reset", "counts of a call go on where the call before it stopped", CALLS,
        EXECUTOR, "for (Stream* s : call_streams_) s->sent = s->received = {};",
        "for (Stream* s : call_streams_) s->sent = {};"),
    Bug("repeats-ignores-count", "takes a call of another count for the same call", CALLS, EXECUTOR,
        "call.signature.count == call_.signature.count &&", ""),
    Bug("short-program-kept", "a call that is cut runs the program of one that was not", CALLS,
        CUT, "return short_->clear();\n", "return;\n"),
    Bug("scratch-not-grown", "keeps scratch memory that is too small", CALLS, EXECUTOR,
        "if (needed <= scratch_bytes_) return", "if (scratch_bytes_ > 0 || needed == 0) return"),
    Bug("scratch-leaks", "forgets the old scratch memory when it grows", CALLS, EXECUTOR,
        "  if (scratch_is_shareable_)\n    transport_.release_shareable(scratch_);\n  else\n"
        "    std::free(scratch_);\n  scratch_ =", "  scratch_ ="),
    Bug("arrival-sent-twice", "does not remember that the arrival record was sent", CALLS, EXECUTOR,
        "  p.arrival_sent = true;\n", ""),
    Bug("arrival-released-with-data", "drops the data that came with an arrival record", CALLS,
        EXECUTOR, "if (tag == FrameTag::arrival) endpoint.release();", "endpoint.release();"),
    Bug("ways-kept", "a direct call keeps the ways that messages took in the last", CALLS, PROGRAM,
        "if (staged && staged_) return;", "if (staged == staged_) return;"),
    # ---- Failures ----
    Bug("failure-not-told", "peers of a call do not hear that it failed", FAULTS, EXECUTOR,
        "    if (s.endpoint != nullptr) s.endpoint->signal(Signal::failed, word);\n",
        "    static_cast<void>(s), static_cast<void>(word);\n"),
    Bug("failure-not-heard", "a call does not look whether rank 0 failed", FAULTS, EXECUTOR,
        "  for (std::size_t s = 0; s < streams_.size(); s += channels) {\n"
        "    if (streams_[s].endpoint == nullptr) continue;\n    const std::uint64_t word",
        "  for (std::size_t s = channels; s < streams_.size(); s += channels) {\n"
        "    if (streams_[s].endpoint == nullptr) continue;\n    const std::uint64_t word"),
    Bug("first-error-replaced", "a later failure takes the place of the first", FAULTS, EXECUTOR,
        "  if (!status_.ok()) return;\n"
        "  status_ = explain_ ? explain_(std::move(status)) : std::move(status);\n"
        "  interrupted_ = !finished_;\n}\n\n"
        "void Executor::fail(Status status) {\n  if (!status_.ok()) return;\n",
        "  status_ = explain_ ? explain_(std::move(status)) : std::move(status);\n"
        "  interrupted_ = !finished_;\n}\n\n"
        "void Executor::fail(Status status) {\n"),
    Bug("late-reads-passed-on", "passes on what it read of a peer that had failed", FAULTS, STEPS,
        "  return any_has_failed() && hear_of_failures();\n", "  return false;\n"),
    Bug("import-unchecked", "goes on without memory that could not be mapped", FAULTS, EXECUTOR,
        "    if (!locate(peer, buffer, reference)) {",
        "    if (!locate(peer, buffer, reference) && buffer_bytes(buffer) == 0) {"),
    Bug("import-blames-mapping", "a peer that failed is told as memory that cannot be mapped",
        FAULTS, EXECUTOR, "      if (hear_of_failures()) return false;\n", ""),
    Bug("memory-not-withdrawn", "peers still store into the memory of a call that failed", FAULTS,
        STATE, "    executor_->withdraw_memory();\n", ""),
    Bug("death-not-noticed", "a call waits for a rank that the transport has lost", FAULTS, STATE,
        "  if (!polled.ok() && !executor_->done())\n    executor_->fail(",
        "  if (!polled.ok() && !executor_->done() && moved)\n    executor_->fail("),
    Bug("culprit-off-by-one", "news of a failure name the rank before the culprit", FAULTS, NOTICE,
        "static_cast<std::int64_t>(notice.culprit) + 1);",
        "static_cast<std::int64_t>(notice.culprit));"),
    Bug("failure-not-spread", "a failed call is told to the peers of that call only", FAULTS, STATE,
        "    executor_->withdraw_memory();\n    tell_all();\n",
        "    executor_->withdraw_memory();\n"),
    Bug("hear-not-called", "a call that waits does not look for news", FAULTS, STATE,
        "      idle_rounds_ = 0;\n      hear();\n", "      idle_rounds_ = 0;\n"),
    Bug("membership-stands-still", "a rank in no call does not answer those that agree", FAULTS,
        AFTER_FAILURE,
        "  static_cast<void>(transport_->poll());\n  return membership_->advance();\n",
        "  static_cast<void>(transport_->poll());\n  return false;\n"),
    Bug("news-not-announced", "neighbours are called, and not told why", FAULTS, MEMBERSHIP,
        "  mailbox_.announce(Signal::failed, encode(Notice::of(failure)));\n", ""),
    Bug("callers-not-answered", "does not take up connections of those that call", FAULTS,
        MEMBERSHIP, "bool Membership::advance() {\n  mailbox_.answer_callers();\n",
        "bool Membership::advance() {\n"),
    Bug("late-lines-not-told", "news do not go to ranks that are met later", FAULTS, MAILBOX,
        "    if (announced_) line.endpoint->signal(announced_->first, announced_->second);\n", ""),
    Bug("leavers-not-noticed", "waits for a peer that closed its communicator", FAULTS, MAILBOX,
        "  if (seeks_leavers && line.outgoing.empty()) "
        "static_cast<void>(line.endpoint->reserve(1));\n",
        "  static_cast<void>(seeks_leavers);\n"),
    Bug("losses-not-passed-on", "the agreement does not hear of lost ranks", FAULTS, MEMBERSHIP,
        "  for (const Rank rank : mailbox_.take_lost()) agreement_.lost(rank);\n",
        "  static_cast<void>(mailbox_.take_lost());\n"),
    Bug("loss-changes-nothing", "nobody takes over from a coordinator that died", FAULTS, AGREEMENT,
        "  lost_[at(rank)] = true;\n  move();\n", "  lost_[at(rank)] = true;\n"),
    # ---- Agreement ----
    Bug("decides-too-early", "decides before all hold the proposal", FAULTS, AGREEMENT,
        "    if (rank != self_ && !is_lost(rank) && !acknowledged_[at(rank)]) return;\n", ""),
    Bug("held-proposals-ignored", "a new coordinator proposes its own", FAULTS, AGREEMENT,
        "  const Proposal* held = mine_.held ? &*mine_.held : nullptr;\n"
        "  for (const auto& [rank, contribution] : contributions_)\n"
        "    if (contribution.held && (held",
        "  const Proposal* held = nullptr;\n"
        "  for (const auto& [rank, contribution] : contributions_)\n"
        "    if (false && contribution.held && (held"),
    Bug("latecomers-not-answered", "who decided does not tell those that still ask", FAULTS,
        AGREEMENT, "    if (kind == kAsk || kind == kJoin) answer_late(from, instance);\n",
        "    if (kind == kAsk) answer_late(from, instance);\n"),
    Bug("early-messages-dropped", "what comes before the rank agrees itself is lost", FAULTS,
        AGREEMENT, "    early_.push_back({from, kind, std::string(body)});\n", "    return;\n"),
    Bug("lost-left-out", "the decision does not say who is lost", FAULTS, AGREEMENT,
        "    proposal.decision.lost = lost_;\n",
        "    proposal.decision.lost.assign(at(size_), false);\n"),
    Bug("flags-not-joined", "the decision has the flags of the coordinator only", FAULTS, AGREEMENT,
        "      proposal.decision.flags &= contribution.flags;\n", ""),
    Bug("joined-not-told", "who gets a decision keeps it from those that joined it", FAULTS,
        AGREEMENT, "    if (!is_lost(rank)) answer_late(rank, instance_);\n",
        "    if (is_lost(rank)) answer_late(rank, instance_);\n"),
    # ---- Mismatches ----
    Bug("count-not-encoded", "arrival records do not tell the count", STRICT, ARRIVAL,
        "root << 16 | s.count << 48,\n      s.count >> kCountBitsBelow | ", "root << 16,\n      "),
    Bug("type-not-encoded", "arrival records do not tell the type", STRICT, ARRIVAL,
        " | number(s.type) << 56,", ","),
    Bug("op-not-encoded", "arrival records do not tell the operation", STRICT, ARRIVAL,
        "      op | number(kind) << 8", "      (op & 0) | number(kind) << 8"),
    Bug("root-and-plan-not-encoded", "arrival records tell neither root nor plan", STRICT, ARRIVAL,
        "number(kind) << 8 | root << 16 | s.count << 48,\n"
        "      s.count >> kCountBitsBelow | number(s.history) << 32, s.plan_hash};",
        "number(kind) << 8 | (root & 0) | s.count << 48,\n"
        "      s.count >> kCountBitsBelow | number(s.history) << 32, 0};"),
    Bug("history-forgotten", "calls do not tell of those before them", MISMATCHES, STATE,
        "  history_ = history_after(s);\n", ""),
    Bug("direct-inquiry-unread", "who asks in a direct call is not answered", MISMATCHES, ARRIVAL,
        "      kind > kVaried)\n",
        "      kind > kVaried || (kind == kDirect && bytes.size() <= kArrivalBytes))\n"),
    Bug("strays-not-found", "does not look for calls that it takes no part in", MISMATCHES, STATE,
        "  else\n    executor_->find_strays();\n", ""),
    Bug("inquiry-not-answered", "does not compare the call of one that waits for it", MISMATCHES,
        STATE, "    executor_->answer_inquiry(asked->first, asked->second);\n",
        "    static_cast<void>(asked);\n"),
    Bug("failure-before-call-missed", "a call that only sends begins although a peer failed",
        FAULTS, EXECUTOR,
        "any_failed |= peer.endpoint->signalled(Signal::failed) != 0;", ""),
    Bug("failure-not-passed-on", "peers of a call that is never made are not told", FAULTS,
        EXECUTOR, "    pass_on_failure(usual);\n", ""),
    Bug("verdict-next-rank-only", "strict calls are compared with the next rank only", STRICT,
        CHECK, "for (Rank other = 0; other < size_; ++other) {",
        "for (Rank other = (rank_ + 1) % size_; other < size_; other += size_) {"),
    Bug("verdict-compares-little", "strict calls are compared by their number only", STRICT, CHECK,
        "std::equal(theirs.begin(), theirs.end(), mine_.begin())",
        "std::equal(theirs.begin(), theirs.begin() + 8, mine_.begin())"),
    Bug("verdict-ignored", "strict calls begin whatever the check says", STRICT, STATE,
        "if (verdict.ok()) verdict = begin_call(*current_);", "verdict = begin_call(*current_);"),
    # ---- Checksums ----
    Bug("number-not-summed", "checksums do not cover the number of a frame", FAULTS, CHECKED,
        "beside = {number, tag, payload.size()};", "beside = {0 * number, tag, payload.size()};"),
    Bug("tag-not-summed", "checksums do not cover the tag", FAULTS, CHECKED,
        "beside = {number, tag, payload.size()};", "beside = {number, 0 * tag, payload.size()};"),
    Bug("first-frame-only", "frames after the first are taken unverified", FAULTS, CHECKED,
        "  verified_ = false;\n", ""),
    Bug("payload-cut", "checksums cover no more than 64 bytes of the payload", FAULTS, CHECKED,
        "return base::crc32c(payload, base",
        "return base::crc32c(payload.first(payload.size() < 64 ? payload.size() : 64), base"),
]

// pipeline_links.cc: see pipeline_links.hpp. A message is a group of one call: messages of groups
// keep their order, and may be started without being waited for.
#include "training/parallel/pipeline_links.hpp"

#include <utility>

namespace tutti::training {
namespace {

std::size_t count_of(const Tensor& t) { return static_cast<std::size_t>(t.count()); }

// The Work of the one call that `call` makes.
template <typename Call>
Result<Work> start(Communicator& communicator, Call&& call) {
  if (const Status status = communicator.group_begin(); !status.ok()) return status;
  const Status asked = call();
  auto works = communicator.group_end_async();
  if (!asked.ok()) return asked;
  if (!works.ok()) return works.status();
  TRAINING_CHECK(works->size() == 1, "a group of one message is one work");
  return std::move(works->front());
}

}  // namespace

// The destructor of a Work waits for it; two stages that fail would wait for each other.
Outbox::~Outbox() {
  let_go();
  if (!sending_.empty()) communicator_.abort();
}

Inbox::~Inbox() {
  if (receiving_ && !receiving_->work.test()) communicator_.abort();
}

void Outbox::let_go() {
  while (!sending_.empty() && sending_.front().work.test()) sending_.pop_front();
}

Status Outbox::send(const Tensor& message) {
  let_go();
  auto work = start(communicator_, [&] {
    return communicator_.send(message.data(), count_of(message), message.type(),
                              1 - communicator_.rank());
  });
  if (!work.ok()) return work.status().with_context("sending to the next pipeline stage");
  sending_.push_back({message, std::move(*work)});
  return {};
}

Status Outbox::finish(Timeline& timeline) {
  if (sending_.empty()) return {};
  const Stretch stretch(timeline, Lane::communication, "send");
  while (!sending_.empty()) {
    if (const Status status = sending_.front().work.wait(); !status.ok())
      return status.with_context("sending to a pipeline stage");
    sending_.pop_front();
  }
  return {};
}

Status Inbox::expect(std::vector<MessageKey> order, DataType type, const Shape& shape,
                     Arena& arena) {
  TRAINING_CHECK(arrived_.empty() && !receiving_, "messages of the step before were not taken");
  order_ = std::move(order);
  asked_ = 0;
  type_ = type;
  shape_ = shape;
  arena_ = &arena;
  return ask_for_next();
}

Status Inbox::ask_for_next() {
  if (asked_ == order_.size()) return {};
  const Tensor message(*arena_, MemoryKind::communication, type_, shape_);
  auto work = start(communicator_, [&] {
    return communicator_.recv(message.data(), count_of(message), message.type(),
                              1 - communicator_.rank());
  });
  if (!work.ok()) return work.status().with_context("receiving from a pipeline stage");
  receiving_ = Receiving{message, std::move(*work)};
  ++asked_;
  return {};
}

Result<Tensor> Inbox::take(const MessageKey& key, Timeline& timeline) {
  const Stretch stretch(timeline, Lane::communication, "receive", key.micro_batch);
  while (!arrived_.contains(key)) {
    TRAINING_CHECK(receiving_, "a message that nobody sends");
    if (const Status status = receiving_->work.wait(); !status.ok())
      return status.with_context("receiving from a pipeline stage");
    arrived_[order_[asked_ - 1]] = receiving_->message;
    receiving_.reset();
    if (const Status status = ask_for_next(); !status.ok()) return status;
  }
  auto found = arrived_.extract(key);
  return std::move(found.mapped());
}

Result<PipelineLinks> PipelineLinks::make(Communicator& stages) {
  PipelineLinks links;
  const int count = stages.size(), here = stages.rank();
  if (count == 1) return links;
  for (int from = 0; from < count; ++from) {
    const int to = (from + 1) % count;
    const bool mine = here == from || here == to;
    // The sender of each direction has rank 0.
    auto forward = stages.split(mine ? 0 : -1, here == from ? 0 : 1);
    if (!forward.ok()) return forward.status();
    auto backward = stages.split(mine ? 0 : -1, here == to ? 0 : 1);
    if (!backward.ok()) return backward.status();
    if (here == from) {
      links.to_next = std::make_unique<Outbox>(std::move(*forward));
      links.from_next = std::make_unique<Inbox>(std::move(*backward));
    } else if (here == to) {
      links.from_previous = std::make_unique<Inbox>(std::move(*forward));
      links.to_previous = std::make_unique<Outbox>(std::move(*backward));
    }
  }
  return links;
}

}  // namespace tutti::training

// pipeline_links.hpp: activations and gradients on their way between neighbouring pipeline stages.
//
// Each direction between two neighbours is a communicator of its own, so that messages of different
// directions never wait for each other. Sends are started and forgotten until they are complete.
// Of what comes, the next message is always asked for ahead, in the order in which its sender sends
// (the schedule tells), and kept until it is wanted.
//
// Knows ranks and messages' numbers; does not know what a schedule is.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "training/parallel/timeline.hpp"
#include "training/tensor/tensor.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training {

// Which message: of a virtual stage of the receiver, and of a micro-batch.
struct MessageKey {
  int chunk = 0;
  int micro_batch = 0;
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

// The sending end of one direction.
class Outbox {
 public:
  explicit Outbox(Communicator communicator) : communicator_(std::move(communicator)) {}
  // What is still on its way will not be taken: the receiver hears that nobody sends any more.
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Starts it. The tensor stays alive until it has been sent.
  Status send(const Tensor& message);
  // Blocks until all is sent.
  Status finish(Timeline& timeline);

 private:
  struct Sending {
    Tensor message;
    Work work;
  };
  void let_go();

  Communicator communicator_;
  std::deque<Sending> sending_;
};

// The receiving end of one direction.
class Inbox {
 public:
  explicit Inbox(Communicator communicator) : communicator_(std::move(communicator)) {}
  // What is still expected will not come: it is not waited for.
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // The messages of a step, in the order in which they are sent; all of one size.
  Status expect(std::vector<MessageKey> order, DataType type, const Shape& shape, Arena& arena);

  // Blocks until it is here. Requires  a message that is expected and has not been taken.
  Result<Tensor> take(const MessageKey& key, Timeline& timeline);

 private:
  Status ask_for_next();

  Communicator communicator_;
  std::vector<MessageKey> order_;
  std::size_t asked_ = 0;  // messages of order_ that have been asked for
  DataType type_ = DataType::float32;
  Shape shape_;
  Arena* arena_ = nullptr;
  struct Receiving {
    Tensor message;
    Work work;
  };
  std::optional<Receiving> receiving_;
  std::map<MessageKey, Tensor> arrived_;
};

// This rank's ends. Stages are a ring where stages are virtual: the last one's successor is the
// first. Null: there is none.
struct PipelineLinks {
  std::unique_ptr<Outbox> to_next, to_previous;
  std::unique_ptr<Inbox> from_previous, from_next;

  // Collective over `stages`, a communicator of one rank for each stage.
  static Result<PipelineLinks> make(Communicator& stages);
};

}  // namespace tutti::training

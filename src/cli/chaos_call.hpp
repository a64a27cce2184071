// chaos_call.hpp: a random call for a simulated world: which collective, by which algorithm, with
// what settings, and each rank's plan and buffers for it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/chaos_dice.hpp"
#include "cli/chaos_oracle.hpp"
#include "collectives/builder.hpp"
#include "collectives/plan.hpp"
#include "runtime/communicator_state.hpp"
#include "tutti/transport.hpp"

namespace tutti::cli {

using Plans = std::vector<std::shared_ptr<const collectives::Plan>>;  // by rank

// A call as the ranks make it.
struct PlannedCall {
  ChaosCall call;
  const collectives::Algorithm* algorithm = nullptr;
  int group = 1;
  collectives::PlanSettings settings;
  bool in_place = false;
  bool ordered = false;  // folds in the order of ranks
  Plans plans;           // none for a message
  // Of a message, which is a send_recv as far as `call` goes: who makes it. Nobody else does.
  Rank from = -1;
  Rank to = -1;

  bool is_message() const { return from >= 0; }
};

std::string describe(const PlannedCall& planned);

// What the worlds' transports offer to a call.
struct CallRoom {
  int channels = 1;
  std::size_t frame_bytes = 4096;
  bool varied = true;   // blocks may differ in size
  bool direct = false;  // whatever can be
};

// Any call of `ranks`.
PlannedCall draw_call(Dice& dice, int ranks, const CallRoom& room);

// Any call; or one of the plans of one of the latest two, as a training step makes again and again,
// perhaps of another count, type or operation.
PlannedCall draw_call_after(const std::deque<PlannedCall>& calls, Dice& dice, int ranks,
                            const CallRoom& room);

// The same call with something else in it, that peers must notice: another count, type, operation,
// root or collective.
PlannedCall draw_variant(Dice& dice, const PlannedCall& call, const CallRoom& room);

// From one rank to another; no more elements than `count_max`.
PlannedCall draw_message(Dice& dice, int ranks, Rank from, Rank to, std::size_t count_max);

// Plans for one of the table's algorithms, staged, on one channel.
Plans plain_plans(const char* algorithm, Collective collective, int ranks, std::size_t slice_bytes);

// The request of one rank. Input and output as the call says, or in place.
runtime::CommunicatorState::Request request_of(const PlannedCall& planned, Rank rank,
                                               std::byte* input, std::byte* output);

// The blocks of a call where they differ in size; and such a request. Lifetime  of the blocks:
// until the request is made.
runtime::Blocks blocks_of(const ChaosCall& call, Rank rank, std::byte* input, std::byte* output);
void vary(runtime::CommunicatorState::Request& request, const ChaosCall& call,
          const runtime::Blocks& blocks);

// One rank's buffers for a call, or for two that may differ.
class RankBuffers {
 public:
  // Some of the memory may be the transport's, which peers can address; or all.
  RankBuffers(Dice& dice, Transport& transport, const PlannedCall& planned, Rank rank,
              const PlannedCall* variant = nullptr, bool all_shareable = false);
  ~RankBuffers();
  RankBuffers(const RankBuffers&) = delete;
  RankBuffers& operator=(const RankBuffers&) = delete;

  std::byte* input() const { return input_; }
  std::byte* output() const { return output_; }

  // When a rank enters the call, and not before: until then its memory is its own, and what a peer
  // stored there too early is lost, as it should be.
  void fill(const ChaosCall& call, Rank rank);
  // After it the memory is the rank's own again: what it then does must harm nobody. Lifetime  of
  // `call`: the buffers'.
  void spoil(const ChaosCall& call, Rank rank);
  // Whether it has been left alone since; true before.
  bool left_alone(Rank rank) const;
  // What is wrong of the results; empty when all is right.
  std::string find_wrong(const PlannedCall& planned, Rank rank, ChaosOracle& oracle) const;
  // Whether anything was written to the output since fill().
  bool touched(const ChaosCall& call, Rank rank) const;

 private:
  std::byte* allocate(Dice& dice, std::size_t bytes);

  Transport& transport_;
  bool all_shareable_;
  bool in_place_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  const ChaosCall* spoiled_ = nullptr;
  std::vector<std::pair<std::byte*, bool>> owned_;  // and whether it is the transport's
};

}  // namespace tutti::cli

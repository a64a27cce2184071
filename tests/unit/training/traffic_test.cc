// traffic_test.cc: what each way of sharing a model costs, counted where frames leave a rank, and
// what it saves, counted by the arena: both as whole numbers, against the formulas.
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kit/counting_transport.hpp"
#include "training/modules/moe.hpp"
#include "unit/training/layout_world.hpp"

namespace tutti::training::test {
namespace {

// The ring, in one channel: what formulas of books are about. Whatever has fewer elements than
// ranks is not split evenly, so all extents here divide.
CommunicatorOptions counted(kit::TrafficBook& book) {
  CommunicatorOptions options;
  options.algorithm = "ring";
  options.reduce_order = "any";
  options.channels = 1;
  options.wrap_transport = book.wrapper();
  return options;
}

EngineOptions even_options() {
  EngineOptions options = small_options();
  options.model.vocabulary = 64;
  options.micro_batches = 4;
  options.sequence = 16;
  return options;
}

std::uint64_t sent(const Communicator& communicator) {
  return kit::traffic_of(communicator)->sent().payload_bytes;
}

std::uint64_t sent(const Communicator& communicator, Collective by) {
  return kit::traffic_of(communicator)->sent().by(by);
}

constexpr std::uint64_t kFloat = 4;

std::uint64_t parameter_bytes(Engine& engine) {
  return kFloat * static_cast<std::uint64_t>(engine.options().model.parameter_count());
}

// Bytes of this rank's part of the group that has the embedding and the head.
std::uint64_t root_bytes(Engine& engine) {
  std::uint64_t bytes = 0;
  const DataParallel& data = engine.data_parallel();
  for (std::size_t i = 0; i < data.group_count(); ++i)
    if (data.group(i).name() == "embedding and head")
      bytes += kFloat * static_cast<std::uint64_t>(data.group(i).count());
  return bytes;
}

TEST(Traffic, OfDataParallelIsTwiceTheGradient) {
  for (const int ranks : {2, 4}) {
    kit::TrafficBook book;
    EngineOptions options = even_options();
    options.mesh.dp_replicate = ranks;
    const auto n = static_cast<std::uint64_t>(ranks);
    train(
        options, 1,
        [&](int, Engine& engine) {
          EXPECT_EQ(sent(engine.groups().data), 2 * (n - 1) * parameter_bytes(engine) / n);
        },
        counted(book));
  }
}

TEST(Traffic, OfZeroOneAndTwoIsThatOfDataParallel) {
  for (const Zero zero : {Zero::optimizer, Zero::gradients}) {
    kit::TrafficBook book;
    EngineOptions options = even_options();
    options.mesh.dp_shard = 4;
    options.data.zero = zero;
    train(
        options, 1,
        [&](int, Engine& engine) {
          // The values are sent once before the first step and once after it.
          const std::uint64_t once = 3 * parameter_bytes(engine) / 4;
          const Communicator& shard = engine.groups().shard;
          EXPECT_EQ(sent(shard, Collective::reduce_scatter), once);
          EXPECT_EQ(sent(shard, Collective::all_gather), 2 * once);
        },
        counted(book));
  }
}

// Forward gathers every group; backward all but the one that forward used last, or two.
TEST(Traffic, OfShardedValuesIsThreeTimesTheModel) {
  for (const bool keep_last_block : {false, true}) {
    kit::TrafficBook book;
    EngineOptions options = even_options();
    options.mesh.dp_shard = 4;
    options.data.zero = Zero::values;
    options.data.keep_last_block = keep_last_block;
    train(
        options, 1,
        [&](int, Engine& engine) {
          const std::uint64_t all = 3 * parameter_bytes(engine) / 4;
          const std::uint64_t root = 3 * root_bytes(engine) / 4;
          const auto layers = static_cast<std::uint64_t>(options.model.layers);
          const std::uint64_t block = (all - root) / layers;
          const std::uint64_t kept = keep_last_block ? 1 : 0;
          const Communicator& shard = engine.groups().shard;
          EXPECT_EQ(sent(shard, Collective::all_gather), all + (layers - kept) * block);
          EXPECT_EQ(sent(shard, Collective::reduce_scatter), all);
          const std::int64_t gathers = options.model.layers + 1 + options.model.layers;
          EXPECT_EQ(engine.data_parallel().gathers(), gathers - (keep_last_block ? 1 : 0));
          EXPECT_EQ(engine.data_parallel().reductions(), options.model.layers + 1);
        },
        counted(book));
  }
}

TEST(Traffic, OfHybridShardingIsThriceWithinAndOnceAcross) {
  kit::TrafficBook book;
  EngineOptions options = even_options();
  options.mesh.dp_replicate = 2;
  options.mesh.dp_shard = 2;
  options.data.zero = Zero::values;
  train(
      options, 1,
      [&](int, Engine& engine) {
        const std::uint64_t all = parameter_bytes(engine) / 2, root = root_bytes(engine) / 2;
        EXPECT_EQ(sent(engine.groups().shard), all + (all - root) + all);
        // The all_reduce of a half, between two: twice a half of it.
        EXPECT_EQ(sent(engine.groups().replica), parameter_bytes(engine) / 2);
      },
      counted(book));
}

// What a layer adds: the difference of two models that differ in layers only.
std::uint64_t tensor_parallel_bytes(std::int64_t layers, bool sequence_parallel) {
  kit::TrafficBook book;
  EngineOptions options = even_options();
  options.mesh.tp = 2;
  options.model.layers = layers;
  options.sequence_parallel = sequence_parallel;
  options.micro_batches = 1;
  std::uint64_t bytes = 0;
  train(
      options, 1,
      [&](int rank, Engine& engine) {
        if (rank == 0) bytes = sent(engine.groups().tp);
      },
      counted(book));
  return bytes;
}

TEST(Traffic, OfTensorParallelIsFourAllReducesALayer) {
  const EngineOptions options = even_options();
  const auto activation = static_cast<std::uint64_t>(options.micro_batch_rows * options.sequence *
                                                     options.model.hidden) *
                          kFloat;
  // An all_reduce between two sends 2 (N - 1) / N = 1 of its bytes.
  EXPECT_EQ(tensor_parallel_bytes(3, false) - tensor_parallel_bytes(2, false), 4 * activation);
}

// The same bytes as gathers and scatters, and the norms' gradients once a step.
TEST(Traffic, OfSequenceParallelIsThatOfTensorParallel) {
  const EngineOptions options = even_options();
  const auto activation = static_cast<std::uint64_t>(options.micro_batch_rows * options.sequence *
                                                     options.model.hidden) *
                          kFloat;
  const auto norms = static_cast<std::uint64_t>(2 * options.model.hidden) * kFloat;
  EXPECT_EQ(tensor_parallel_bytes(3, true) - tensor_parallel_bytes(2, true),
            4 * activation + norms);
}

// Rows that are routed to another rank's expert go there and come back, forward and backward.
TEST(Traffic, OfExpertsIsTheRoutedRowsOnly) {
  kit::TrafficBook book;
  EngineOptions options = even_options();
  options.model.architecture = Architecture::mixtral;
  options.model.experts = 4;
  options.mesh.dp_shard = 2;
  options.mesh.ep = 2;
  options.micro_batches = 2;
  std::uint64_t rows = 0, bytes = 0;
  train(
      options, 1,
      [&](int rank, Engine& engine) {
        for (std::int64_t layer = 0; layer < options.model.layers; ++layer) {
          const auto& load = engine.stages()[0]->block(layer).mixture()->load();
          for (std::size_t expert = 0; expert < load.size(); ++expert)
            if (static_cast<int>(expert) / 2 != rank)
              rows += static_cast<std::uint64_t>(load[expert]);
        }
        bytes += sent(engine.groups().ep, Collective::all_to_all);
      },
      counted(book));
  // Before each dispatch, each rank tells the other how many rows come for each of its two experts.
  const auto counts =
      2 * 2 * static_cast<std::uint64_t>(options.model.layers) * sizeof(std::int64_t);
  EXPECT_EQ(bytes - counts, 4 * rows * static_cast<std::uint64_t>(options.model.hidden) * kFloat);
  EXPECT_GT(rows, 0u);
}

// ---- Memory ------------------------------------------------------------------------------------

struct MemoryCase {
  std::string name;
  Zero zero;
  std::uint64_t values_parts, gradient_parts, optimizer_parts;  // into how many each is cut
};

class ZeroMemory : public testing::TestWithParam<MemoryCase> {};

// float32, in units of a model of that many bytes: values 1, gradients 1, AdamW's moments 2. While
// the optimizer runs, which is when a step's gradients are complete.
TEST_P(ZeroMemory, IsTheFormulas) {
  const MemoryCase& c = GetParam();
  EngineOptions options = even_options();
  options.mesh.dp_shard = 4;
  options.data.zero = c.zero;
  options.data.bucket_bytes = 1;  // each parameter a bucket of its own
  options.data.reshard = Reshard::always;
  std::uint64_t values[4] = {}, gradients[4] = {}, moments[4] = {}, activations[4] = {};
  std::uint64_t model = 0;
  const Inspect listen = [&](int rank, Engine& engine) {
    if (rank == 0) model = parameter_bytes(engine);
    engine.timeline().set_sink([&engine, &values, &gradients, &moments, &activations, rank](
                                   Lane, const std::string& name, double, double) {
      if (name != "optimizer") return;
      values[rank] = engine.arena().bytes(MemoryKind::parameter);
      gradients[rank] = engine.arena().bytes(MemoryKind::gradient);
      moments[rank] = engine.arena().bytes(MemoryKind::optimizer);
      activations[rank] = engine.arena().bytes(MemoryKind::activation);
    });
  };
  train(options, 2, {}, {}, listen);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(values[rank], model / c.values_parts);
    EXPECT_EQ(gradients[rank], model / c.gradient_parts);
    EXPECT_EQ(moments[rank], 2 * model / c.optimizer_parts);
    EXPECT_EQ(activations[rank], 0u);
  }
}

// DDP keeps all of it all the time; ZeRO-1's gradients are whole while backward runs, and are its
// parts when the optimizer does.
INSTANTIATE_TEST_SUITE_P(Stages, ZeroMemory,
                         testing::Values(MemoryCase{"ddp", Zero::replicate, 1, 1, 1},
                                         MemoryCase{"zero1", Zero::optimizer, 1, 4, 4},
                                         MemoryCase{"zero2", Zero::gradients, 1, 4, 4},
                                         MemoryCase{"zero3", Zero::values, 4, 4, 4}),
                         [](const testing::TestParamInfo<MemoryCase>& c) { return c.param.name; });

// Of two micro-batches a rank: ZeRO-1 adds whole gradients, ZeRO-2 parts of them; besides, it holds
// those of the block that backward is at.
TEST(Gradients, ArePartsAlreadyDuringBackwardOfZeroTwo) {
  EngineOptions options = even_options();
  options.model.layers = 8;
  options.mesh.dp_shard = 4;
  options.micro_batches = 8;
  options.data.bucket_bytes = 1;
  std::uint64_t peaks[2] = {}, model = 0;
  for (const Zero zero : {Zero::optimizer, Zero::gradients}) {
    options.data.zero = zero;
    train(options, 1, [&](int, Engine& engine) {
      peaks[zero == Zero::gradients] = engine.arena().peak(MemoryKind::gradient);
      model = parameter_bytes(engine);
    });
  }
  EXPECT_GE(peaks[0], model);
  EXPECT_LE(peaks[1], 2 * model / 4 + 2 * model / 8);
}

// While a step runs, no more than two blocks' values and the root's are here besides the parts.
TEST(ShardedValues, AreHereForTwoBlocksAtATime) {
  EngineOptions options = even_options();
  options.model.layers = 8;
  options.mesh.dp_shard = 2;
  options.micro_batches = 2;
  options.data.zero = Zero::values;
  train(options, 2, [&](int, Engine& engine) {
    const std::uint64_t model = parameter_bytes(engine), root = root_bytes(engine);
    const std::uint64_t block = (model - root) / 8;
    EXPECT_LE(engine.arena().peak(MemoryKind::parameter), model / 2 + root + 2 * block);
  });
}

// A micro-batch in flight is one whose activations live.
TEST(Pipeline, KeepsAsManyMicroBatchesAsItsScheduleSays) {
  const std::pair<const char*, std::vector<std::int64_t>> cases[] = {
      {"1f1b", {4, 3, 2, 1}}, {"gpipe", {8, 8, 8, 8}}, {"zb-h1", {4, 4, 4, 4}}};
  for (const auto& [schedule, expected] : cases) {
    EngineOptions options = even_options();
    options.mesh.pp = 4;
    options.micro_batches = 8;
    options.schedule = schedule;
    const std::vector<std::int64_t>& at_stage = expected;
    train(options, 1, [&](int rank, Engine& engine) {
      EXPECT_EQ(engine.runner().peak_in_flight(), at_stage[static_cast<std::size_t>(rank)])
          << options.schedule << ", stage " << rank;
    });
  }
}

}  // namespace
}  // namespace tutti::training::test

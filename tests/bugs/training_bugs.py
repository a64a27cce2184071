"""The faults of tools/training-faults: mistakes of training programs, most of them known from
others' bug reports, kept as edits of src/training, so that our tests can be shown to find them.

Each fault replaces `old`, which occurs exactly once in its file, with `new`; `test` is the filter
of the tests in test_training, few and quick, of which at least one must fail with it. The test
bugs.training_check sees that `old` is still there; bugs.training compiles and runs them all.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    what: str
    test: str
    file: str
    old: str
    new: str


ENGINE = "src/training/engine/engine.cc"
RUNNER = "src/training/engine/pipeline_runner.cc"
DATA = "src/training/parallel/data_parallel.cc"
GROUP = "src/training/parallel/parameter_group.cc"
LINKS = "src/training/parallel/pipeline_links.cc"
STAGE = "src/training/model/stage.cc"
INITIAL = "src/training/model/initial.cc"
BLOCK = "src/training/modules/block.cc"
DISPATCH = "src/training/modules/dispatch.cc"
EMBEDDING = "src/training/modules/embedding.cc"
HEAD = "src/training/modules/head.cc"
MLP = "src/training/modules/mlp.cc"
MOE = "src/training/modules/moe.cc"
NORM = "src/training/modules/norm.cc"
ROUTER = "src/training/modules/router.cc"
TENSOR_PARALLEL = "src/training/modules/tensor_parallel.cc"
ATTENTION = "src/training/ops/attention.cc"
SOFTMAX = "src/training/ops/softmax_loss.cc"
ROPE = "src/training/ops/rope.cc"
SAMPLER = "src/training/data/sampler.cc"
OPTIMIZER = "src/training/optim/optimizer.cc"
TREE = "src/training/optim/gradient_tree.cc"
CONFIG_JSON = "src/training/architecture/config_json.cc"
TRAINER = "src/training/trainer/trainer.cc"
RUN_DATA = "src/training/trainer/run_data.cc"
WRITE = "src/training/trainer/checkpoint.cc"
READ = "src/training/trainer/checkpoint_read.cc"


def known(test):
    return f"KnownBugs.{test}"


def of_runs(test):
    return f"KnownBugsOfRuns.{test}"


def layout(name):
    return f"Meshes/SmallLayouts.*/{name}"


def sharing(name):
    return f"Layouts/DataParallelBits.*/{name}"


RESUMED = of_runs("AResumedRunIsTheOneThatWentOn")

FAULTS = [
    # ---- What is minimised ----
    Fault("mean-of-means", "a micro-batch weighs the same however many targets it has",
          known("EachTargetWeighsTheSameHoweverRowsAreCut"), ENGINE,
          "    data.loss_scale = loss_scale / static_cast<double>(input.targets);\n"
          "    input.fill(number_of(j, here), data.tokens, data.targets);\n",
          "    input.fill(number_of(j, here), data.tokens, data.targets);\n"
          "    double targets = 0;\n"
          "    for (const auto target : data.targets) targets += target >= 0 ? 1 : 0;\n"
          "    data.loss_scale = loss_scale / (static_cast<double>(count) * targets);\n"),
    Fault("not-divided", "the gradient is a sum over data-parallel ranks, not a mean",
          layout("dp2"), ENGINE, "loss_scale / static_cast<double>(input.targets);",
          "loss_scale * options_.mesh.dp() / static_cast<double>(input.targets);"),
    Fault("divided-twice", "the reduction divides by the number of ranks once more",
          layout("dp2"), GROUP, "sum.type(), ReduceOp::sum);", "sum.type(), ReduceOp::avg);"),
    Fault("loss-of-copies", "each tensor-parallel rank adds the same loss", layout("tp2"), ENGINE,
          "j < here && groups_->at.tp == 0; ++j", "j < here; ++j"),
    Fault("padding-counts", "targets that do not count add to the loss",
          "Head.LossIsTheCrossEntropyOfItsLogits", HEAD,
          "      if (targets[r] == kIgnored) continue;\n", ""),
    Fault("balance-unlearnt", "the balance loss is reported, but has no gradient",
          known("TheGradientIsThatOfTheReportedLosses"), ENGINE,
          "  context_.balance_scale = options_.model.balance_coefficient * result.loss_scale /",
          "  context_.balance_scale = 0 * result.loss_scale /"),
    Fault("loss-scale-stays", "the gradient is not divided by the loss scale",
          known("AScaledLossChangesNoBit"), ENGINE,
          " : 1.0) / result.loss_scale);", " : 1.0));"),
    Fault("scaled-norm", "the norm of the scaled gradient is reported and clipped",
          known("AScaledLossChangesNoBit"), ENGINE,
          "result.gradient_norm = *norm / result.loss_scale;", "result.gradient_norm = *norm;"),
    # ---- Gradients of what ranks share ----
    Fault("norms-of-own-rows", "gradients of norms are not summed under sequence parallelism",
          layout("tp2_sp"), NORM,
          "  weight_.sharing = bias_.sharing = context.sequence_parallel ? Sharing::partial : "
          "Sharing::same;\n",
          "  weight_.sharing = bias_.sharing = Sharing::same;\n"),
    Fault("tie-of-two-stages", "the tied embedding is not summed between the ends of a pipeline",
          layout("pp2_tied"), DATA,
          "  return sum_among(*comms_.ends, [](const Parameter& p) { return p.on_two_stages; });",
          "  return {};"),
    Fault("tie-forgotten", "a tied weight learns from the embedding, not from the head",
          layout("pp2_tied"), DATA,
          "    if (parameter->tied_to) accumulate(owned.at(parameter->tied_to), gradient);\n",
          "    static_cast<void>(parameter), static_cast<void>(gradient);\n"),
    Fault("kv-copies-apart", "copies of a key-value head learn from their own query heads",
          layout("tp2_one_kv_head"), DATA, "  if (status.ok() && comms_.copies.size() > 1)\n",
          "  if (status.ok() && comms_.copies.size() > 1000)\n"),
    Fault("input-gradient-of-a-part", "tensor-parallel ranks do not sum the gradient of an input",
          layout("tp2"), TENSOR_PARALLEL,
          "const Tensor& dx) {\n  return summed(context, dx);", "const Tensor& dx) {\n"
          "  static_cast<void>(context);\n  return dx;"),
    Fault("bias-of-each-rank", "each tensor-parallel rank adds the bias before the sum",
          "DenseParallel.MlpIsThatOfOneRank", MLP,
          "  const Tensor y = leave_shared(context_, part);\n"
          "  return bias_ ? bias_->forward(y, saved.bias) : y;\n",
          "  return leave_shared(context_, bias_ ? bias_->forward(part, saved.bias) : part);\n"),
    Fault("experts-with-all", "experts are reduced among ranks that have others", layout("ep2"),
          DATA, "      parameters.front()->expert\n",
          "      parameters.front()->expert && comms_.ep.size() == 1\n"),
    Fault("replicas-apart", "what has been scattered is not reduced among the replicas",
          layout("hsdp2x2"), GROUP,
          "  return last_closed_ ? start_reduction(groups_.replica, ",
          "  return last_closed_ ? start_reduction(nullptr, "),
    Fault("same-data", "all data-parallel ranks read the same rows", layout("dp2"), ENGINE,
          "  return (at.dp_replicate * mesh.dp_shard + at.dp_shard) * here + j;", "  return j;"),
    # ---- Norm and overflow ----
    Fault("norm-of-copies", "the norm counts what tensor-parallel ranks all have once for each",
          layout("tp2"), DATA, "parameter.sharing == Sharing::split || tp_rank == 0;",
          "parameter.sharing == Sharing::split || tp_rank >= 0;"),
    Fault("norm-of-replicas", "the norm counts each data-parallel rank's gradient", layout("dp2"),
          DATA, "const ParameterGroup::Holder holder = group->holder();",
          "const ParameterGroup::Holder holder{0, 1};"),
    Fault("norm-of-both-ends", "the norm counts a tied weight on both of its stages",
          layout("pp2_tied"), DATA, "  if (parameter.tied_to || parameter.duplicate) return false;",
          "  if (parameter.tied_to) return false;"),
    Fault("overflow-of-one", "ranks do not hear that another's gradient is infinite",
          known("AnOverflowOnOneRankSkipsTheStepOnAll"), DATA,
          "comms_.world->all_reduce(sum.limbs(), ReduceOp::sum);",
          "comms_.world->all_reduce(sum.limbs().first(68), ReduceOp::sum);"),
    Fault("skipped-step-counts", "the optimizer counts a step that it skipped",
          known("AnOverflowOnOneRankSkipsTheStepOnAll"), ENGINE, "  if (!result.skipped) {\n",
          "  if (result.skipped) ++steps_done_;\n  if (!result.skipped) {\n"),
    Fault("clip-upside-down", "a gradient beyond the limit is made longer",
          known("AClippedStepIsAsLongAsTheLimit"), ENGINE,
          "(clips ? options_.clip / result.gradient_norm : 1.0)",
          "(clips ? result.gradient_norm / options_.clip : 1.0)"),
    Fault("decay-of-norms", "weight decay pulls at norms", known("WeightDecayIsOfMatricesOnly"),
          NORM, "  weight_.decays = bias_.decays = false;\n", ""),
    Fault("correction-from-zero", "moments are corrected for one step more than there were",
          "Types/Wide.TheFirstAdamWStepIsTheSignOfTheGradient/*", OPTIMIZER,
          "const double n = static_cast<double>(step.number);",
          "const double n = static_cast<double>(step.number + 1);"),
    # ---- Values and gradients on their way ----
    Fault("bucket-too-early", "gradients are reduced before the last micro-batch", layout("dp2"),
          DATA, "++entry.closed == owner_.micro_batches_;",
          "++entry.closed == std::max<std::int64_t>(owner_.micro_batches_ - 1, 1);"),
    Fault("values-too-early", "gathered values are read before they have come", sharing("fsdp_2"),
          GROUP,
          "  if (const Status status = wait(gathering_, \"gather\"); !status.ok()) {\n"
          "    stand_in();\n    return status;\n  }\n",
          "  struct Late {\n    ParameterGroup& group;\n    ~Late() {\n"
          "      static_cast<void>(group.wait(group.gathering_, \"gather\"));\n    }\n"
          "  } late{*this};\n"),
    Fault("values-of-yesterday", "what the optimizer changed is not sent to the others",
          sharing("zero1_2"), ENGINE,
          "  data_->clear_gradients();\n"
          "  if (status = publish(); !status.ok()) return status;\n",
          "  data_->clear_gradients();\n"),
    Fault("values-kept-too-long", "values that stay after backward stay after the optimizer",
          known("HoweverLongValuesStayTheyAreThoseOfTheStep"), DATA,
          "    group->release_values();\n    if (!group->keeps_values()) continue;\n",
          "    if (!group->keeps_values()) continue;\n"),
    Fault("rounded-once", "sixteen-bit values stay what they were at first",
          known("SixteenBitsLearnLikeThirtyTwo"), GROUP,
          "    if (!masters_.empty()) convert(masters_, values_);\n",
          "    if (!masters_.empty() && gathers_++ == 0) convert(masters_, values_);\n"),
    Fault("rest-of-a-parameter", "what does not divide among the ranks is left out",
          known("UnevenPartsLoseNothing"), GROUP, "(member.count + shard_size_ - 1) / shard_size_;",
          "member.count / shard_size_;"),
    Fault("gradients-of-before", "a micro-batch begins with another's gradient",
          "GradientTree.NextIsZeroThoughItsMemoryWasUsed", TREE, "Tensor::zeros(", "Tensor("),
    # ---- Pipelines ----
    Fault("another-micro-batch", "a stage takes messages for those of other micro-batches",
          layout("pp2"), RUNNER, "order.push_back({stages.chunk_of(to), action.micro_batch});",
          "order.push_back({stages.chunk_of(to), action.micro_batch ^ 1});"),
    Fault("last-weights-dropped", "zero bubble forgets the weights of the last micro-batch",
          layout("pp2_zb"), RUNNER,
          "    stages_[index(action.chunk)]->backward(",
          "    if (what != Backward::weight || live_.size() > 1)\n"
          "      stages_[index(action.chunk)]->backward("),
    Fault("layer-between-stages", "a layer too many for equal stages is on none",
          layout("pp2_uneven"), STAGE, "begin + each + (stage < more ? 1 : 0)", "begin + each"),
    # ---- Modules ----
    Fault("shared-positions", "ranks of sequence parallelism all count positions from 0",
          "DenseParallel.EmbeddingIsThatOfOneRank", EMBEDDING,
          "context.sequence_parallel ? context.tp.rank() * context.local_rows() : 0;", "0;"),
    Fault("padded-vocabulary", "the last rank's part goes beyond the vocabulary",
          "DenseParameters.VocabularyPartsCoverIt", EMBEDDING,
          ".end = std::min((rank + 1) * each, vocabulary)}", ".end = (rank + 1) * each}"),
    Fault("padding-in-softmax", "lanes beyond the last column take part in the softmax",
          "*/DenseOps.ExponentialsOfEveryLength/*", SOFTMAX,
          "    if (n < kLanes<W>)\n      value = hn::IfThenElseZero(",
          "    if (n < 0)\n      value = hn::IfThenElseZero("),
    Fault("slow-positions", "rotary positions advance every other token",
          "InstructionSets/Rotary.TurnsPairsAsComplexNumbers/*", ROPE,
          "const double angle = static_cast<double>(i / half)",
          "const double angle = static_cast<double>(i / head_size)"),
    Fault("one-token-ahead", "the causal mask lets each token see the next",
          "*/AttentionBits.OfARowDoNotDependOnLaterRows/*", ATTENTION,
          "const std::int64_t valid = std::min(count, first + r - begin + 1);",
          "const std::int64_t valid = std::min(count, first + r - begin + 2);"),
    Fault("earlier-rows-dropped", "beyond its capacity an expert keeps the last rows",
          "Capacity.DropsTheLaterRowsOfAnExpert", DISPATCH,
          "  for (const std::int32_t expert : routing.chosen) {\n"
          "    const auto e = static_cast<std::size_t>(expert);\n"
          "    handle.placement.positions.push_back(next[e] < end[e] ? next[e]++ : "
          "Placement::kDropped);\n",
          "  handle.placement.positions.assign(routing.chosen.size(), Placement::kDropped);\n"
          "  for (std::size_t a = routing.chosen.size(); a-- > 0;) {\n"
          "    const auto e = static_cast<std::size_t>(routing.chosen[a]);\n"
          "    if (next[e] < end[e]) handle.placement.positions[a] = next[e]++;\n"),
    Fault("no-rows-no-call", "a rank that has no rows for experts does not take part",
          "ExpertParallel.WorksWithRanksAndExpertsThatHaveNoRows", DISPATCH,
          "  if (context.ep.size() == 1) return sent;\n",
          "  if (context.ep.size() == 1 || total(handle.received_rows) == 0) return sent;\n"),
    Fault("router-of-a-part", "the router learns from a part of the experts' outputs",
          "TensorParallelExperts.AreTheSameAsOnOneRank", MOE,
          "  context_.tp.all_reduce_sum(dweights);\n", ""),
    Fault("router-of-each-rank", "each tensor-parallel rank adds the router's gradient",
          "TensorParallelExperts.AreTheSameAsOnOneRank", ROUTER,
          "  if (context_.tp.rank() > 0) return {};\n", ""),
    Fault("segment-of-another", "blocks are computed again from another segment's input",
          known("RecomputingChangesNoBit"), STAGE, "std::move(batch.segments.back());",
          "batch.segments.front();"),
    Fault("not-normed-again", "attention gets back the block's input, without its norm",
          known("RecomputingChangesNoBit"), BLOCK,
          "parts.attention.give_input(saved.attention, parts.input_norm.forward(saved.x, known));",
          "parts.attention.give_input(saved.attention, saved.x);"),
    # ---- Beginnings ----
    Fault("drawn-by-place-in-part", "tensor-parallel ranks draw the same numbers",
          "InitialTest.PartsTogetherAreTheWhole", INITIAL,
          "random.normal(static_cast<std::uint64_t>(run.in_whole + i))",
          "random.normal(static_cast<std::uint64_t>(run.in_part + i))"),
    Fault("all-drawn-alike", "weights of equal extents begin with the same values",
          "InitialTest.SeedAndNameDecide", INITIAL, "key_of(seed, parameter.name)",
          "key_of(seed, \"weight\")"),
    # ---- Data ----
    Fault("window-twice", "every other row reads the window of the row before",
          of_runs("StepsReadEachWindowOnceAnEpoch"), SAMPLER,
          "order(static_cast<std::uint64_t>(row % windows_))",
          "order(static_cast<std::uint64_t>(row % windows_ / 2 * 2))"),
    Fault("one-order", "all epochs have the same order", "SamplerOverCorpus.EpochsAndSeedsDiffer",
          SAMPLER, "static_cast<std::uint64_t>(epoch(row)));", "epoch(row) * 0);"),
    Fault("rows-overlap", "micro-batches begin a row apart, not a micro-batch",
          of_runs("StepsReadEachWindowOnceAnEpoch"), RUN_DATA, "first_row + number * each, each",
          "first_row + number, each"),
    Fault("rate-of-micro-batches", "the learning rate goes on with every micro-batch",
          of_runs("TheLearningRateFollowsStepsNotMicroBatches"), RUN_DATA,
          "learning_rate(run_.optim.rate, step, run_.train.steps);",
          "learning_rate(run_.optim.rate, step * micro_batches, run_.train.steps);"),
    # ---- Checkpoints ----
    Fault("batch-skipped", "a resumed run leaves a step out", RESUMED, TRAINER,
          "    first_step_ = saved_ = state->step;", "    first_step_ = saved_ = state->step + 1;"),
    Fault("batch-repeated", "a resumed run makes a step again", RESUMED, TRAINER,
          "    first_step_ = saved_ = state->step;", "    first_step_ = saved_ = state->step - 1;"),
    Fault("moments-lost", "a resumed run begins with moments of zero", RESUMED, READ,
          "status = read_part(files[i + 1], place, place.moments[i]);", "continue;"),
    Fault("steps-lost", "a resumed run corrects moments as if it were new", RESUMED, READ,
          "  engine.set_steps_done(state->optimizer_steps);\n", ""),
    Fault("written-by-place-in-part", "tensor-parallel ranks write where the first one does",
          of_runs("CheckpointsKnowNoLayout"), WRITE, "static_cast<std::uint64_t>(run.in_whole)",
          "static_cast<std::uint64_t>(run.in_part)"),
    Fault("read-by-place-in-part", "tensor-parallel ranks all read the first one's part",
          of_runs("CheckpointsKnowNoLayout"), READ, "static_cast<std::size_t>(run.in_whole + i)",
          "static_cast<std::size_t>(run.in_part + i)"),
    Fault("tie-not-told", "a model that is written loses that its ends are tied",
          of_runs("ReshardedModelsAreStillTied"), CONFIG_JSON,
          "object[\"tie_word_embeddings\"] = config.tied;",
          "object[\"tie_word_embeddings\"] = false;"),
]

// Runs small worlds with one store or load of those that order memory made relaxed: the thread
// sanitizer must find what it guarded (and nothing where none is weakened).
//
//   gpu_weaken          none weakened
//   gpu_weaken SITE     that one; names are those of sites.hpp
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "cases.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "exchange_trial.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kTimes = 6;  // a call is made

struct Scenario {
  Collective collective;
  const char* algorithm;
  int ranks;
  Travels travels;
  std::size_t count;
  bool in_place;
  bool scaled = false;
};

// News goes one way in a broadcast: nothing but the way back of a queue says when a slot is free.
// What is pushed and granted, or offered in the middle of a call, takes more steps.
constexpr Scenario kScenarios[] = {
    {Collective::broadcast, "direct", 2, Travels::flagged, 40, false},
    {Collective::broadcast, "direct", 2, Travels::staged, 150, false},
    {Collective::broadcast, "ring", 3, Travels::direct, 300, false},
    {Collective::all_gather, "ring", 3, Travels::direct, 300, true},
    {Collective::all_reduce, "ring", 3, Travels::direct, 900, true},
    {Collective::all_reduce, "ring", 3, Travels::mixed, 900, false},
    {Collective::all_reduce, "halving_doubling", 4, Travels::direct, 600, true},
    {Collective::reduce, "tree", 4, Travels::direct, 300, false},
    {Collective::all_reduce, "doubling", 2, Travels::flagged, 60, false},
    {Collective::all_reduce, "direct", 3, Travels::staged, 300, true},
    {Collective::all_reduce, "direct", 3, Travels::direct, 300, false, true},
    {Collective::reduce_scatter, "direct", 3, Travels::direct, 300, false, true},
};

// The same call again and again; ranks change their inputs as soon as a call is over.
bool play(const ScheduleShape& shape, const std::vector<EncodedProgram>& programs, Travels travels,
          std::size_t count, bool in_place, bool scaled) {
  const CallCase what{DataType::int32, ReduceOp::sum, count, in_place, travels, 1, 5, scaled};
  std::vector<std::vector<std::byte>> arenas(
      static_cast<std::size_t>(shape.ranks),
      std::vector<std::byte>(Trial::bytes_needed(shape, what)));
  HostWorld world({static_cast<std::uint32_t>(shape.ranks), 1, 2, 512, 256}, 2);
  for (Rank rank = 0; rank < shape.ranks; ++rank)
    world.share(rank, arenas[static_cast<std::size_t>(rank)].data());
  Trial trial(shape, programs, what, arenas, 0);
  const std::vector<Job> jobs(kTimes, trial.job());
  const auto refill = [](void* context, std::size_t rank, std::size_t) {
    static_cast<Trial*>(context)->fill(rank);
  };
  return world.run(jobs, refill, &trial) && trial.judge().empty();
}

bool play(const Scenario& scenario) {
  const auto algorithm = collectives::find_algorithm(scenario.collective, scenario.algorithm);
  const Result<Schedule> schedule = build(**algorithm, scenario.ranks, 0);
  const auto programs = encode(collectives::lower_all(*schedule));
  return play(schedule->shape, *programs, scenario.travels, scenario.count, scenario.in_place,
              scenario.scaled);
}

// In every algorithm of the table, who pushes has what it pushes from news of the rank that grants,
// later than all that this one did with its memory. Here nothing else is told: rank 1 uses its
// output, and only then lets rank 0 store there.
bool grant_after_use() {
  using collectives::DirectForm;
  using collectives::LoweredOperand;
  const LoweredOperand input;
  LoweredOperand output;
  output.buffer = Buffer::output;
  LoweredOperand message = output;
  message.kind = Operand::Kind::message;
  message.direct = DirectForm::push;
  std::vector<collectives::LoweredProgram> programs(2);
  for (const Rank rank : {0, 1}) {
    collectives::LoweredProgram& program = programs[static_cast<std::size_t>(rank)];
    program.shape.collective = Collective::broadcast;
    program.shape.ranks = 2;
    program.rank = rank;
    program.peers = {1 - rank};
    program.sends = {1 - rank};
    program.receives = {rank};
  }
  programs[0].steps.resize(1);
  programs[0].steps[0].sources = {input};
  programs[0].steps[0].destinations = {output, message};
  message.mine = true;
  programs[1].steps.resize(2);
  programs[1].steps[0].sources = {input};
  programs[1].steps[0].destinations = {output};
  programs[1].steps[1].sources = {message};
  programs[1].steps[1].destinations = {output};
  programs[1].steps[1].depends = {{0, false}};
  return play(programs[0].shape, *encode(programs), Travels::direct, 300, false, false);
}

// Somebody reads why a rank has failed while it does.
bool fail() {
  const auto algorithm = collectives::find_algorithm(Collective::broadcast, "direct");
  const Result<Schedule> schedule = build(**algorithm, 2, 0);
  const auto programs = encode(collectives::lower_all(*schedule));
  const CallCase what{DataType::int32, ReduceOp::sum, 10, false, Travels::staged, 1, 5};
  std::vector<std::vector<std::byte>> arenas(
      2, std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what)));
  HostWorld world({2, 1, 2, 512, 256}, 1);
  Trial trial(schedule->shape, *programs, what, arenas, 0);
  trial.job().absent = 0;
  trial.job().calls[1].timeout_ns = 1'000'000;
  std::atomic<bool> well = false;
  std::thread watcher([&] {
    while (world.error(1).why != Why::timeout) std::this_thread::yield();
    well = true;
  });
  const bool failed = !world.run({&trial.job(), 1});
  watcher.join();
  return failed && well;
}

// An all_gather of two ranks in memory that is behind gates.
struct Gated {
  const CallCase what{DataType::int32, ReduceOp::sum, 300, false, Travels::direct, 1, 5};
  const Result<Schedule> schedule =
      build(**collectives::find_algorithm(Collective::all_gather, "direct"), 2, 0);
  const Result<std::vector<EncodedProgram>> programs = encode(collectives::lower_all(*schedule));
  std::vector<std::vector<std::byte>> arenas{
      2, std::vector<std::byte>(Trial::bytes_needed(schedule->shape, what))};
  HostWorld world{{2, 1, 2, 512, 256}, 2};
  Trial trial{schedule->shape, *programs, what, arenas, 0};

  Gated() {
    world.put_up_gates();
    for (DeviceCall& call : trial.job().calls)
      for (MemoryRef& memory : call.shared) memory.generation = memory.region;
  }
  void share(Rank rank) {
    world.share(rank, arenas[static_cast<std::size_t>(rank)].data());
    world.set_gate(rank, 1);
  }
};

// Somebody gives memory of a rank's back as soon as its block is not in a call any more.
bool withdraw() {
  Gated gated;
  for (const Rank rank : {0, 1}) gated.share(rank);
  std::thread owner([&] {
    while (gated.world.visits(0, 0) != 2) std::this_thread::yield();
    gated.arenas[0].assign(gated.arenas[0].size(), std::byte{0});
  });
  const bool well = gated.world.run({&gated.trial.job(), 1});
  owner.join();
  return well;
}

// Memory of a rank's becomes reachable for its peers while there are calls. What they have of it,
// they have from who maps it by way of the rank that has seen its gate open, and of no other.
struct Coming {
  Trial& trial;
  std::atomic<bool> has_come = false;

  // Of calls behind the first. What lets them begin says nothing about memory.
  static void await(void* context, std::size_t rank, std::size_t job) {
    auto& coming = *static_cast<Coming*>(context);
    while (job > 0 && !coming.has_come.load(std::memory_order_relaxed)) std::this_thread::yield();
    coming.trial.fill(rank);
  }
};

bool come() {
  Gated gated;
  Coming coming{gated.trial};
  std::thread owner([&] {
    while (gated.world.visits(0, 0) != 2) std::this_thread::yield();
    for (const Rank rank : {0, 1}) gated.share(rank);
    coming.has_come.store(true, std::memory_order_relaxed);
  });
  const std::vector<Job> jobs(3, gated.trial.job());
  const bool well = gated.world.run(jobs, Coming::await, &coming);
  owner.join();
  return well && gated.trial.judge().empty();
}

// News goes one way, as in a broadcast; through slots, or from where it lies.
bool exchange(bool offered) {
  HostWorld world({2, 1, 2, 512, 256, 1}, 2);
  ExchangeTrial trial(world, {{0, 1, 2000, offered}});
  const std::vector<Job> jobs(kTimes, trial.job());
  const auto refill = [](void* context, std::size_t rank, std::size_t) {
    static_cast<ExchangeTrial*>(context)->fill(rank);
  };
  return world.run(jobs, refill, &trial) && trial.judge().empty();
}

int main_of(int count, char** values) {
  if (count > 1) {
    for (int site = 0; site < kSiteCount; ++site)
      if (std::string_view(kSiteNames[site]) == values[1]) weakened_site = site;
    if (weakened_site == kNoSite) {
      std::fprintf(stderr, "no site is called %s\n", values[1]);
      return 2;
    }
  }
  bool well = fail();
  well = grant_after_use() && well;
  well = withdraw() && well;
  well = come() && well;
  for (const bool offered : {false, true}) well = exchange(offered) && well;
  for (const Scenario& scenario : kScenarios) well = play(scenario) && well;
  return well ? 0 : 1;
}

}  // namespace
}  // namespace tutti::runtime::gpu

int main(int count, char** values) { return tutti::runtime::gpu::main_of(count, values); }

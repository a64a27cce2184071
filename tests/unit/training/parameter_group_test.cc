// parameter_group_test.cc: what is left to say of a group of parameters when a step fails; what it
// does in steps that do not is proved by whole layouts (data_parallel_test.cc, traffic_test.cc).
#include <gtest/gtest.h>

#include <thread>

#include "training/parallel/parameter_group.hpp"

namespace tutti::training {
namespace {

// Rank 1 never makes the call, and lives until rank 0 is done: who waited for it would wait until
// the deadline of a collective, ten minutes.
void give_up_alone(Zero zero) {
  auto worlds = Communicator::for_threads(2);
  ASSERT_TRUE(worlds.ok()) << worlds.status().to_string();
  std::thread rank([&] {
    Arena arena;
    Timeline timeline;
    Communicator& world = worlds->front();
    Parameter weight = whole_parameter("weight", {8});
    ParameterGroup group("group", {&weight}, zero, DataGroups{&world, &world, nullptr},
                         DataType::float32, arena, timeline);
    group.open_gradients();
    ASSERT_TRUE(group.close_gradients(true).ok());
    group.give_up();
  });
  rank.join();
}

TEST(ParameterGroup, GivesUpAReductionThatOthersDoNotJoin) { give_up_alone(Zero::replicate); }

TEST(ParameterGroup, GivesUpAScatterThatOthersDoNotJoin) { give_up_alone(Zero::gradients); }

}  // namespace
}  // namespace tutti::training

// reshard.hpp: which gathered values are let go of between forward and backward.
#pragma once

namespace tutti::training {

enum class Reshard : unsigned char {
  automatic,  // all but what forward used last, since backward begins with it
  always,
  never,  // nor after backward: they are gathered once in a step
};

}  // namespace tutti::training

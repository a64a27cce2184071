// members.hpp: ranks that are about to become a communicator, and the little that they need to know
// of each other before they have one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/memory/transport.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

// A set of ranks that can already talk a little.
struct Members {
  Rank rank = 0;
  int size = 1;
  ExchangeFunction exchange;
  std::string secret;                 // of the job; may be empty on one host
  std::string address = "127.0.0.1";  // of rank 0, to find the way out of this host
  std::uint64_t context = 0;          // different for every communicator of a world
  std::uint64_t job = 0;              // tells worlds apart, also on other ranks; 0: not agreed yet
  std::shared_ptr<transport::MemoryWorld> threads;  // set when ranks are threads
};

}  // namespace tutti::runtime

// host.hpp: which host a rank is on, what it may use there, and under which address others reach
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::runtime {

// What a rank tells the others about its place.
struct HostCard {
  std::string host;          // <machine>/<network>: equal for ranks that share both
  std::vector<int> cpus;     // that the rank may run on
  std::string settings;      // configuration that must be equal everywhere, as text
  std::uint64_t job = 0;     // drawn by each rank; all take rank 0's to tell their job from others
  std::uint64_t tuning = 0;  // hash of the tuning table; 0: none
  std::string tuning_source = "none";  // where it lies, for people

  // Equal exactly for ranks that share a kernel, and so its cores, whatever their network.
  std::string_view machine() const { return std::string_view(host).substr(0, host.find('/')); }

  friend bool operator==(const HostCard&, const HostCard&) = default;
};

// A number that tells a job from all others. Never 0.
std::uint64_t draw_job();

HostCard describe_host();

// What is not UTF-8 arrives as U+FFFD.
std::string encode(const HostCard& card);
// Errors  corrupt_data.
Result<HostCard> decode_host_card(std::string_view text);

// The address of this host on the way to `destination`, or that of the named interface.
// Errors  invalid_argument, naming the interface or destination.
Result<std::string> address_toward(const std::string& destination, const std::string& interface);

}  // namespace tutti::runtime

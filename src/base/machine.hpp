// machine.hpp: a name for the kind of machine that this is, so that what was measured on one kind
// is not taken for another's: the processor, and how many of them there are. Equal on all machines
// of a cluster that are alike, whatever their names.
#pragma once

#include <string>
#include <string_view>

namespace tutti::base {

// "x86_64, AMD EPYC, family 26, model 2, 2 processors". Printable ASCII, at most 200 characters.
std::string machine_kind();

// The same from what the kernel says: the architecture, /proc/cpuinfo, and a count of processors.
std::string machine_kind(std::string_view architecture, std::string_view cpuinfo, long processors);

}  // namespace tutti::base

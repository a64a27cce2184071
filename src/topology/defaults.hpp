// defaults.hpp: the numbers that stand in for links which nobody has measured or reported.
//
// They only have to be of the right order and to rank kinds of links correctly; every link made
// from them says LinkSource::assumed, and tuning replaces them. Bandwidths are bytes per ns
// (GB/s) per direction, latencies ns. Knows nothing of any particular machine.
#pragma once

namespace tutti::topology {

// What one server core copies through memory, and a cache line's way from core to memory and
// to a shared cache. Common values of 2018-2024 server parts.
inline constexpr double kCoreBandwidth = 12.0;
inline constexpr double kCoreLatencyNs = 50.0;
inline constexpr double kCacheBandwidth = 50.0;
inline constexpr double kCacheLatencyNs = 25.0;

// Between memory domains of a package, and between packages (one direction of two to three
// UPI or xGMI links, as data really moves over them).
inline constexpr double kDomainBandwidth = 60.0;
inline constexpr double kDomainLatencyNs = 50.0;
inline constexpr double kPackageBandwidth = 30.0;
inline constexpr double kPackageLatencyNs = 100.0;

// PCI Express 3.0 x16 after line coding, for a device that does not tell; one traversal of a
// link including its port.
inline constexpr double kPcieBandwidth = 15.75;
inline constexpr double kPcieLatencyNs = 150.0;
// PCI Express 5.0 x16, for the GPU nodes of synthetic lines.
inline constexpr double kPcieGen5Bandwidth = 63.0;

// An H100 has 18 fourth generation NVLinks of 25 GB/s per direction.
inline constexpr double kNvlinkBandwidth = 450.0;
inline constexpr double kNvlinkLatencyNs = 350.0;

// 10 Gb/s for a live interface that does not tell; 200 Gb/s per NIC in synthetic lines. Half of
// the one-way time through an idle network with one switch.
inline constexpr double kNicBandwidth = 1.25;
inline constexpr double kSyntheticNicBandwidth = 25.0;
inline constexpr double kNetworkLatencyNs = 500.0;

}  // namespace tutti::topology

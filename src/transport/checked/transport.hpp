// transport.hpp: checksums over what another transport carries. Every frame gets four more bytes
// behind its payload: the CRC32C of payload, length, tag, the frame's number on its connection, and
// the connection itself (communicator, sender, receiver, channel). So a frame that was altered,
// cut, extended, lost, repeated, overtaken or brought to somebody else is noticed when it, or the
// one after it, is looked at; it is never shown. An error of at most 32 bits in a row, and one of
// up to three bits anywhere, is noticed with certainty; any other with all but one chance in 2^32.
//
// Only frames are checked. Therefore no memory is offered for direct access, and all data travels
// in frames. Does not know the transport beneath it, nor sends a frame again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tutti/transport.hpp"

namespace tutti::transport {

// By how much a checked transport's frame_bytes_max() is below that of the one beneath it.
inline constexpr std::size_t kChecksumBytes = 4;

// `inner`, and a checksum on every frame. All ranks make it, or none does. `context` is a number
// that tells the communicators of a world apart, the same on all ranks.
//
// Errors  besides those of `inner`: corrupt_data, once a frame does not agree with its checksum;
//         that ends its connection. The text says rank, peer, channel, frame and both checksums.
std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner,
                                                  std::uint64_t context);

}  // namespace tutti::transport

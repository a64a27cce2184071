// call.hpp: one call of one rank, as the executor (executor.hpp) is told of it: what all ranks must
// agree on, and where this one's data lie.
#pragma once

#include <array>
#include <cstddef>

#include "runtime/arrival.hpp"
#include "runtime/blocks.hpp"
#include "runtime/special_reduction.hpp"

namespace tutti::runtime {

struct Call {
  Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  // Of blocks that differ in size, instead of `input` and `output`: for each chunk its own.
  // Requires  the plan is staged, on one channel, and without scratch.
  const Blocks* blocks = nullptr;
  // Of a custom reduction: the plan is an ordered one, and all counts are of values.
  const SpecialReduction* custom = nullptr;
  // The signature as the peers get it; see sign().
  std::array<std::byte, kArrivalBytes> record = {};

  // To be called when the signature is complete.
  void sign() { encode_signature(signature, record); }
  void sign_again() { renumber(signature, record); }  // but for these two it is as it was
  static Call signed_as(const Signature& signature, const std::byte* input, std::byte* output) {
    Call call;
    call.signature = signature;
    call.input = input;
    call.output = output;
    call.sign();
    return call;
  }
  std::size_t element_bytes() const {
    return size_of(signature.type) * (custom == nullptr ? 1 : custom->width);
  }
};

}  // namespace tutti::runtime

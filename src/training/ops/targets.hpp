// targets.hpp: which instruction sets the loops of ops/ are compiled for. Each source that is
// compiled for several includes this before Highway, because the choice must be the same in all.
//
// On x86: AVX-512, AVX2, SSE4 and the compiler's baseline. Sets whose vectors have no size at
// compile time are left to their fixed-size siblings.
#pragma once

// Loops are most of what a sanitizer build compiles here, and AVX2 goes every way through them.
#if defined(TUTTI_SANITIZED)
#define TRAINING_TARGETS_LEFT_OUT (HWY_SSE4 | HWY_AVX3)
#else
#define TRAINING_TARGETS_LEFT_OUT 0
#endif

#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   TRAINING_TARGETS_LEFT_OUT)

// Highway turns its portable vectors, the baseline on x86, off for g++ before 12.3 because of one
// operation (the upper half of a product) that nothing here uses.
#define HWY_BROKEN_EMU128 0

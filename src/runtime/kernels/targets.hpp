// targets.hpp: which instruction sets the kernels are compiled for. Every kernel source includes
// this before Highway, because the choice must be the same in all of them.
//
// On x86: AVX-512, AVX2, SSE4 and the compiler's baseline; the steps between these would cost
// compile time and gain nothing on memory-bound loops. Sets whose vectors have no size at compile
// time are left to their fixed-size siblings.
#pragma once

// Kernels are most of what a sanitizer build compiles, and other vectors go no other way through
// the sources than AVX2; plain builds test them all.
#if defined(TUTTI_SANITIZED)
#define TUTTI_TARGETS_LEFT_OUT (HWY_SSE4 | HWY_AVX3)
#else
#define TUTTI_TARGETS_LEFT_OUT 0
#endif

#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   TUTTI_TARGETS_LEFT_OUT)

// The baseline on x86 is Highway's portable 128-bit vectors. It turns them off for g++ before
// 12.3, whose vectorizer breaks one operation (the upper half of a product); the kernels do not
// use it, and the tests check every instruction set.
#define HWY_BROKEN_EMU128 0

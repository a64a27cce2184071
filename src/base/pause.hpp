// pause.hpp: tells the core that its thread looks at memory again and again, so that it leaves the
// other thread of the core, and its own pipeline, in peace for a moment.
#pragma once

namespace tutti::base {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti::base

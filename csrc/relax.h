// What a loop does while it waits for another thread.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace octavo {

// Tells the processor that this is waiting: it saves power, and the core's other thread gains.
inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__) && !defined(_MSC_VER)
    asm volatile("yield");
#endif
}

}  // namespace octavo

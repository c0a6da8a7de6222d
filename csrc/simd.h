// Vectors of one instruction-set level: the words that every kernel is written in.
//
//   F    kLanes floats, the widest that pays at this level
//   F8   8 floats on every level (the same type as F where kLanes is 8)
//   B    32 bytes, I 8 int32: the integer side, the same on every level
//
// The level's own header has the words that differ; this file has what follows from them. Compiled
// once per level inside `namespace octavo::OCTAVO_LEVEL`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// The one place that knows about compilers.
#if defined(_MSC_VER) && !defined(__clang__)
#define OCTAVO_INLINE __forceinline
#else
#define OCTAVO_INLINE inline __attribute__((always_inline))
#endif
#if defined(_MSC_VER) && !defined(__clang__) && defined(_M_ARM64)
#define OCTAVO_PREFETCH(p) __prefetch(p)
#elif defined(_MSC_VER) && !defined(__clang__)
#define OCTAVO_PREFETCH(p) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0)
#else
#define OCTAVO_PREFETCH(p) __builtin_prefetch(p)
#endif

#if defined(OCTAVO_LEVEL_avx512)
#include "simd_avx512.h"
#elif defined(OCTAVO_LEVEL_avx2) || defined(OCTAVO_LEVEL_avx_vnni)
#include "simd_avx2.h"
#elif defined(OCTAVO_LEVEL_baseline)
#include "simd_sse_bytes.h"
#elif defined(OCTAVO_LEVEL_neon)
#include "simd_neon_bytes.h"
#else
#error "OCTAVO_LEVEL_<level> names none that simd.h knows"
#endif

namespace octavo::OCTAVO_LEVEL {

OCTAVO_INLINE float load_half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, 2);
    return half_to_float(half);
}

// A number of type T at any address.
template <class T>
OCTAVO_INLINE T read(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

// f(0), f(1) ... f(kTimes - 1), written out: to what f calls, the number is a constant.
template <int kNumber>
struct Number {
    constexpr operator int() const { return kNumber; }
};
template <int kTimes, int kFirst = 0, class F>
OCTAVO_INLINE void unrolled(const F& f) {
    if constexpr (kFirst < kTimes) {
        f(Number<kFirst>{});
        unrolled<kTimes, kFirst + 1>(f);
    }
}

// The 8 halves of 4 bytes, low half first, as 8 bytes.
OCTAVO_INLINE uint64_t spread_nibbles(uint32_t bits) {
    uint64_t x = bits;
    x = (x | x << 16) & 0x0000FFFF0000FFFFu;
    x = (x | x << 8) & 0x00FF00FF00FF00FFu;
    return (x | x << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

// 8 numbers of 2 bits, lowest first, as 8 bytes.
OCTAVO_INLINE uint64_t spread_pairs(uint16_t bits) {
    uint64_t x = bits;
    x = (x | x << 24) & 0x000000FF000000FFu;
    x = (x | x << 12) & 0x000F000F000F000Fu;
    return (x | x << 6) & 0x0303030303030303u;
}

// a, negated where `mask` is 0xFF.
OCTAVO_INLINE B negate(B mask, B a) {
    return sub(bits_xor(a, mask), mask);
}

// Exponentials: relative error about 1e-7; 0 below about -87, infinity above 88.7, NaN for NaN.
OCTAVO_INLINE F exp(F x) {
    const F clamped = min(splat(89.0f), max(splat(-104.0f), x));
    const F n = round_even(mul(clamped, splat(1.44269504f)));
    // ln 2 in two parts, so that n * ln 2 loses nothing.
    F r = fma(n, splat(-0.693359375f), clamped);
    r = fma(n, splat(2.12194440e-4f), r);
    F p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    p = add(fma(p, mul(r, r), r), splat(1.0f));
    return times_power_of_two(p, n);
}

// x / (1 + exp(-x))
OCTAVO_INLINE F silu(F x) {
    return div(x, add(splat(1.0f), exp(sub(zero(), x))));
}

}  // namespace octavo::OCTAVO_LEVEL

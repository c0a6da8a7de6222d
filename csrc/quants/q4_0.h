// q4_0: half-precision d, then 16 bytes of two numbers: low halves are weights 0..15, high halves
// 16..31. w = d * (q - 8).
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct q4_0 {
    static constexpr int kBlock = 32, kBytes = 18, kScaleGroup = 32, kZero = 8;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        scale[0] = load_half_at(block);
        offset[0] = -kZero * scale[0];
    }
    OCTAVO_INLINE static void span_scales(const uint8_t* blocks, float* scale, float* offset) {
        const F8 d = load_8_halves(blocks, kBytes);
        store(scale, d);
        store(offset, mul(d, splat8(-kZero)));
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int) { return load_nibbles(block + 2); }
};

}  // namespace octavo::OCTAVO_LEVEL

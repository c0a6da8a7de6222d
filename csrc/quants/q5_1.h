// q5_1: half-precision d and m, then 20 bytes as in q5_0. w = d * q + m.
#pragma once

#include "quants/q5_0.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct q5_1 {
    static constexpr int kBlock = 32, kBytes = 24, kScaleGroup = 32;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        scale[0] = load_half_at(block);
        offset[0] = load_half_at(block + 2);
    }
    OCTAVO_INLINE static void span_scales(const uint8_t* blocks, float* scale, float* offset) {
        store(scale, load_8_halves(blocks, kBytes));
        store(offset, load_8_halves(blocks + 2, kBytes));
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int) { return load_five_bits(block + 4); }
};

}  // namespace octavo::OCTAVO_LEVEL

// q4_0: half-precision d, then 16 bytes of two numbers: low halves are weights 0..15, high halves
// 16..31. w = d * (q - 8).
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

struct q4_0 {
    static constexpr int kBlock = 32, kBytes = 18, kScaleGroup = 32, kZero = 8;
    static constexpr int kMost = 15;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        scale[0] = load_half_at(block);
        offset[0] = -kZero * scale[0];
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int n_blocks,
                                          float* scale, float*) {
        FloatLanes d[8];
        load_half_headers<kBytes>(spans, n_blocks, d);
        for (int i = 0; i < n_blocks; ++i) store(scale + i * kPanelRows, d[i]);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int) { return load_nibbles(block + 2); }

    static constexpr int kHalvesAt = 2;
    template <class V>
    OCTAVO_INLINE static V value(V halves) {
        return halves;
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// q5_1: half-precision d and m, then 20 bytes as in q5_0. w = d * q + m.
#pragma once

#include "lanes.h"
#include "quants/q5_0.h"

namespace octavo::OCTAVO_LEVEL {

struct q5_1 {
    static constexpr int kBlock = 32, kBytes = 24, kScaleGroup = 32;
    static constexpr int kMost = 31;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        scale[0] = load_half_at(block);
        offset[0] = load_half_at(block + 2);
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int n_blocks,
                                          float* scale, float* offset) {
        IntLanes both[8];
        load_headers<kBytes>(spans, n_blocks, both);
        for (int i = 0; i < n_blocks; ++i) {
            store(scale + i * kPanelRows, floats_of_low_halves(both[i]));
            store(offset + i * kPanelRows, floats_of_high_halves(both[i]));
        }
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int) { return load_five_bits(block + 4); }

    static constexpr int kHalvesAt = 8, kBitsAt = 4;
    template <class V>
    OCTAVO_INLINE static V value(V halves) {
        return halves;
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// q8_0: half-precision d, then 32 int8. w = d * q.
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

struct q8_0 {
    static constexpr int kBlock = 32, kBytes = 34, kScaleGroup = 32;
    static constexpr bool kSigned = true, kOffset = false;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float*) {
        scale[0] = load_half_at(block);
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int n_blocks,
                                          float* scale, float*) {
        FloatLanes d[8];
        load_half_headers<kBytes>(spans, n_blocks, d);
        for (int i = 0; i < n_blocks; ++i) store(scale + i * kPanelRows, d[i]);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int) { return load_bytes(block + 2); }
};

}  // namespace octavo::OCTAVO_LEVEL

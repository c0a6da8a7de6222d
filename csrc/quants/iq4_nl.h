// iq4_nl: half-precision d, then 16 bytes as in q4_0. w = d * table[q].
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

struct iq4_nl {
    static constexpr int kBlock = 32, kBytes = 18, kScaleGroup = 32;
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
    OCTAVO_INLINE static B values(const uint8_t* block, int) {
        return lookup(load_16_twice(kIq4Table), load_nibbles(block + 2));
    }

    static constexpr int kHalvesAt = 2;
    template <class V>
    OCTAVO_INLINE static V value(V halves) {
        return lookup(kIq4Table, halves);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// q5_0: half-precision d, 32 fifth bits (bit i for weight i), 16 bytes as in q4_0.
// w = d * (q - 16).
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

// 32 numbers of 5 bits: 4 bytes of fifth bits, then the lower four.
OCTAVO_INLINE B load_five_bits(const uint8_t* p) {
    const B high = bits_and(mask_of_bits(read<uint32_t>(p)), splat_byte(16));
    return bits_or(load_nibbles(p + 4), high);
}

struct q5_0 {
    static constexpr int kBlock = 32, kBytes = 22, kScaleGroup = 32, kZero = 16;
    static constexpr int kMost = 31;
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
    OCTAVO_INLINE static B values(const uint8_t* block, int) { return load_five_bits(block + 2); }

    static constexpr int kHalvesAt = 6, kBitsAt = 2;
    template <class V>
    OCTAVO_INLINE static V value(V halves) {
        return halves;
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// q5_k: as q4_k, but 32 bytes of fifth bits (bit g for group g) before the 128 of lower bits.
// w = d * s * q - dmin * m.
#pragma once

#include "quants/q4_k.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct q5_k {
    static constexpr int kBlock = 256, kBytes = 176, kScaleGroup = 32;
    static constexpr int kMost = 31;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        read_levels(block, scale, offset);
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int, float* scale,
                                          float* offset) {
        lane_levels(spans, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const B high = field(load_bytes(block + 16), group - 4, 16);
        const B low = field(load_bytes(block + 48 + group / 2 * 32), group % 2 * 4, 15);
        return bits_or(low, high);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// iq2_s: half-precision d, 32 bytes of the low 8 bits of the points' numbers (8 weights each), 32
// of signs (bit i for weight i, one is negative), 8 of the high two bits, 8 of 16 s, low half
// first. w = d / 8 * (2 s + 1) * sign * point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr auto kIq2SGrid = make_grid<uint64_t, 1024>(1536, 2, kIq2Levels);

struct iq2_s {
    static constexpr int kBlock = 256, kBytes = 82, kScaleGroup = 16, kZero = 43;
    static constexpr bool kSigned = false, kOffset = true, kLong = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const float d = load_half_at(block) * 0.125f;
        odd_scales(d, floats_of_fields(read<uint32_t>(block + 74), kNibbles, 4), scale);
        odd_scales(d, floats_of_fields(read<uint32_t>(block + 78), kNibbles, 4), scale + 8);
        set_offsets(kZero, 16, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* low = block + 2 + group * 4;
        const unsigned high = block[66 + group];
        const uint64_t* points = kIq2SGrid.points;
        const B magnitudes = take_words(
            points + (low[0] | (high << 8 & 0x300)), points + (low[1] | (high << 6 & 0x300)),
            points + (low[2] | (high << 4 & 0x300)), points + (low[3] | (high << 2 & 0x300)));
        return add(splat_byte(kZero),
                   negate(mask_of_bits(read<uint32_t>(block + 34 + group * 4)), magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

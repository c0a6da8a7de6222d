// iq3_s: half-precision d, 64 bytes of the low 8 bits of the points' numbers (4 weights each), 8 of
// their ninth bits, 32 of signs (bit i for weight i, one is negative), 4 of 8 s, low half first.
// w = d * (2 s + 1) * sign * point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int8_t kIq3SLevels[16] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr auto kIq3SGrid = make_grid<uint32_t, 512>(4096, 4, kIq3SLevels);

struct iq3_s {
    static constexpr int kBlock = 256, kBytes = 110, kScaleGroup = 32, kZero = 15;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        odd_scales(load_half_at(block), spread_nibbles(read<uint32_t>(block + 106)), scale);
        set_offsets(kZero, 8, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* low = block + 2 + group * 8;
        const unsigned high = block[66 + group];
        const uint32_t* points = kIq3SGrid.points;
        const auto two = [&](int i) {
            return pair(points[low[i] | (high << (8 - i) & 0x100)],
                        points[low[i + 1] | (high << (7 - i) & 0x100)]);
        };
        const B magnitudes = join_words(two(0), two(2), two(4), two(6));
        return add(splat_byte(kZero),
                   negate(mask_of_bits(read<uint32_t>(block + 74 + group * 4)), magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

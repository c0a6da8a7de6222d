// iq3_xxs: half-precision d, 64 numbers of points (4 weights each), then a word for each group:
// four 7-bit sign numbers (8 weights each), lowest first, and s on top. w = d / 4 * (2 s + 1) *
// sign * point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int8_t kIq3XxsLevels[16] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr auto kIq3XxsGrid = make_grid<uint32_t, 256>(3584, 4, kIq3XxsLevels);

struct iq3_xxs {
    static constexpr int kBlock = 256, kBytes = 98, kScaleGroup = 32, kZero = 62;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        odd_scales(load_half_at(block) * 0.25f, upper_halves(block + 69, 4), scale);
        set_offsets(kZero, 8, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* numbers = block + 2 + group * 8;
        const uint32_t* points = kIq3XxsGrid.points;
        const B magnitudes = join_words(pair(points[numbers[0]], points[numbers[1]]),
                                        pair(points[numbers[2]], points[numbers[3]]),
                                        pair(points[numbers[4]], points[numbers[5]]),
                                        pair(points[numbers[6]], points[numbers[7]]));
        const uint32_t signs = even_signs(spread_sevens(read<uint32_t>(block + 66 + group * 4)));
        return add(splat_byte(kZero), negate(mask_of_bits(signs), magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

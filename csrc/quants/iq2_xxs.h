// iq2_xxs: half-precision d, then 8 bytes for each group: 4 numbers of points (8 weights each) and
// a word of four 7-bit sign numbers, lowest first, and s on top. w = d / 8 * (2 s + 1) * sign *
// point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr auto kIq2XxsGrid = make_grid<uint64_t, 256>(0, 2, kIq2Levels);

struct iq2_xxs {
    static constexpr int kBlock = 256, kBytes = 66, kScaleGroup = 32, kZero = 43;
    static constexpr bool kSigned = false, kOffset = true, kLong = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        odd_scales(load_half_at(block) * 0.125f, floats_of_tops(load_odd_words(block + 2)), scale);
        set_offsets(kZero, 8, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const auto word = read<uint64_t>(block + 2 + group * 8);
        const uint64_t* points = kIq2XxsGrid.points;
        const B magnitudes = take_words(points + (word & 0xFF), points + (word >> 8 & 0xFF),
                                        points + (word >> 16 & 0xFF), points + (word >> 24 & 0xFF));
        return add(splat_byte(kZero),
                   negate(even_signs(static_cast<uint32_t>(word >> 32)), magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

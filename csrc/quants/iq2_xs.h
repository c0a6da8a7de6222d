// iq2_xs: half-precision d, 32 words of 16 bits, each for 8 weights: the number of the point in the
// low 9 bits, a sign number above; 8 bytes of 16 s, low half first. w = d / 8 * (2 s + 1) * sign *
// point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr auto kIq2XsGrid = make_grid<uint64_t, 512>(512, 2, kIq2Levels);

struct iq2_xs {
    static constexpr int kBlock = 256, kBytes = 74, kScaleGroup = 16, kZero = 43;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const float d = load_half_at(block) * 0.125f;
        odd_scales(d, spread_nibbles(read<uint32_t>(block + 66)), scale);
        odd_scales(d, spread_nibbles(read<uint32_t>(block + 70)), scale + 8);
        set_offsets(kZero, 16, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const auto words = read<uint64_t>(block + 2 + group * 8);
        const uint64_t* points = kIq2XsGrid.points;
        const B magnitudes = join_words(points[words & 511], points[words >> 16 & 511],
                                        points[words >> 32 & 511], points[words >> 48 & 511]);
        const uint64_t numbers = (words >> 9 & 0x7F) | (words >> 17 & 0x7F00) |
                                 (words >> 25 & 0x7F0000) | (words >> 33 & 0x7F000000);
        return add(splat_byte(kZero),
                   negate(mask_of_bits(even_signs(static_cast<uint32_t>(numbers))), magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

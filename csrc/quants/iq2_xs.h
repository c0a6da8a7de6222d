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
    static constexpr bool kSigned = false, kOffset = true, kLong = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const float d = load_half_at(block) * 0.125f;
        odd_scales(d, floats_of_fields(read<uint32_t>(block + 66), kNibbles, 4), scale);
        odd_scales(d, floats_of_fields(read<uint32_t>(block + 70), kNibbles, 4), scale + 8);
        set_offsets(kZero, 16, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const auto words = read<uint64_t>(block + 2 + group * 8);
        const uint64_t* points = kIq2XsGrid.points;
        const uint64_t* masks = kEvenSigns.masks;
        const B magnitudes = take_words(points + (words & 511), points + (words >> 16 & 511),
                                        points + (words >> 32 & 511), points + (words >> 48 & 511));
        const B signs = take_words(masks + (words >> 9 & 127), masks + (words >> 25 & 127),
                                   masks + (words >> 41 & 127), masks + (words >> 57));
        return add(splat_byte(kZero), negate(signs, magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

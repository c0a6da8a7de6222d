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
    static constexpr bool kSigned = false, kOffset = true, kLong = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        odd_scales(load_half_at(block) * 0.25f, floats_of_tops(load_bytes(block + 66)), scale);
        set_offsets(kZero, 8, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const B magnitudes = take_8(kIq3XxsGrid.points, read<uint64_t>(block + 2 + group * 8));
        const B signs = even_signs(read<uint32_t>(block + 66 + group * 4));
        return add(splat_byte(kZero), negate(signs, magnitudes));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

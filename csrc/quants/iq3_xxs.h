// iq3_xxs: half-precision d, 64 numbers of points (4 weights each), then a word for each group:
// four 7-bit sign numbers (8 weights each), lowest first, and s on top. w = d / 4 * (2 s + 1) *
// sign * point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int8_t kIq3XxsLevels[16] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr auto kIq3XxsGrid = make_pair_grid<256>(3584, 4, kIq3XxsLevels);

struct iq3_xxs {
    static constexpr int kBlock = 256, kBytes = 98, kScaleGroup = 32, kZero = 62;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        odd_scales(load_half_at(block) * 0.25f, floats_of_tops(load_bytes(block + 66)), scale);
        set_offsets(kZero, 8, scale, offset);
    }
    OCTAVO_INLINE static void put_points(const uint8_t* a, const uint8_t* b, uint64_t* out,
                                         int step) {
        for (int group = 0; group < 8; ++group) {
            const auto first = read<uint64_t>(a + 2 + group * 8);
            const auto second = read<uint64_t>(b + 2 + group * 8);
            for (int i = 0; i < 8; ++i, out += step)
                *out = pair_of(kIq3XxsGrid, first >> 8 * i & 0xFF, second >> 8 * i & 0xFF);
        }
    }
    OCTAVO_INLINE static B signs(const uint8_t* block) { return even_sign_bits(block + 66); }
    template <class V>
    OCTAVO_INLINE static V signed_word(V points, V mask) {
        return add(splat_as(mask, kZero), sub(bits_xor(points, mask), mask));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// iq1_s: half-precision d, 32 bytes of the low 8 bits of the points' numbers (8 weights each), then
// a word for each group: four times three high bits, lowest first, s, and on top the sign of the
// shift. Points hold -1, 0 or 1, the shift is 1/8 or -1/8: w = d / 8 * (2 s + 1) * (8 point + 8
// shift). Values are 9 more than that, 0..18.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// 8 times the points, plus 8.
constexpr int8_t kIq1Levels[] = {0, 8, 16, 0};
constexpr auto kIq1Grid = make_grid<uint64_t, 2048>(5120, 2, kIq1Levels);

struct iq1_s {
    static constexpr int kBlock = 256, kBytes = 50, kScaleGroup = 32, kZero = 9;
    static constexpr int kMost = 18;
    static constexpr bool kSigned = false, kOffset = true, kLong = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        odd_scales(load_half_at(block) * 0.125f, floats_of_short_fields(block + 34, 12, 3), scale);
        set_offsets(kZero, 8, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* low = block + 2 + group * 4;
        const unsigned word = read<uint16_t>(block + 34 + group * 2);
        const uint64_t* points = kIq1Grid.points;
        const B all = take_words(
            points + (low[0] | (word << 8 & 0x700)), points + (low[1] | (word << 5 & 0x700)),
            points + (low[2] | (word << 2 & 0x700)), points + (low[3] | (word >> 1 & 0x700)));
        return add(all, splat_byte(static_cast<uint8_t>(~word >> 14 & 2)));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

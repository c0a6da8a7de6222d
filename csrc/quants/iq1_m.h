// iq1_m: as iq1_s, but a shift for each point. 32 bytes of the low 8 bits of the points' numbers,
// 16 of halves, low first: three high bits and the sign of the shift; four 16-bit words, each with
// four s, lowest first, and four bits of the half-precision d on top, lowest word first.
#pragma once

#include "grids.h"
#include "quants/iq1_s.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct iq1_m {
    static constexpr int kBlock = 256, kBytes = 56, kScaleGroup = 16, kZero = 9;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const auto words = read<uint64_t>(block + 48);
        const auto bits = static_cast<uint16_t>((words >> 12 & 0xF) | (words >> 24 & 0xF0) |
                                                (words >> 36 & 0xF00) | (words >> 48 & 0xF000));
        const float d = half_to_float(bits) * 0.125f;
        for (int g = 0; g < 16; ++g) {
            const auto s = static_cast<int>(words >> (g / 4 * 16 + g % 4 * 3) & 7);
            scale[g] = d * static_cast<float>(2 * s + 1);
            offset[g] = -kZero * scale[g];
        }
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* low = block + group * 4;
        const unsigned halves = read<uint16_t>(block + 32 + group * 2);
        return join_points(point(low[0], halves), point(low[1], halves >> 4),
                           point(low[2], halves >> 8), point(low[3], halves >> 12));
    }

  private:
    OCTAVO_INLINE static uint64_t point(unsigned low, unsigned half) {
        constexpr uint64_t kTwoUp = 0x0202020202020202;
        return kIq1Grid.points[low | (half << 8 & 0x700)] + (half & 8 ? 0 : kTwoUp);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

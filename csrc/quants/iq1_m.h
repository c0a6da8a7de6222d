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
        odd_scales(d, spread_threes(words) | spread_threes(words >> 16) << 32, scale);
        odd_scales(d, spread_threes(words >> 32) | spread_threes(words >> 48) << 32, scale + 8);
        set_offsets(kZero, 16, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* low = block + group * 4;
        const unsigned halves = read<uint16_t>(block + 32 + group * 2);
        return join_words(point(low[0], halves), point(low[1], halves >> 4),
                          point(low[2], halves >> 8), point(low[3], halves >> 12));
    }

  private:
    // Four numbers of 3 bits as four bytes.
    OCTAVO_INLINE static uint64_t spread_threes(uint64_t bits) {
        return (bits & 7) | (bits << 5 & 0x700) | (bits << 10 & 0x70000) | (bits << 15 & 0x7000000);
    }
    OCTAVO_INLINE static uint64_t point(unsigned low, unsigned half) {
        constexpr uint64_t kTwoUp = 0x0202020202020202;
        return kIq1Grid.points[low | (half << 8 & 0x700)] + (~half >> 3 & 1) * kTwoUp;
    }
};

}  // namespace octavo::OCTAVO_LEVEL

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
    static constexpr int kMost = 18;
    static constexpr bool kSigned = false, kOffset = true, kLong = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const auto words = read<uint64_t>(block + 48);
        const auto bits = static_cast<uint16_t>((words >> 12 & 0xF) | (words >> 24 & 0xF0) |
                                                (words >> 36 & 0xF00) | (words >> 48 & 0xF000));
        const float d = half_to_float(bits) * 0.125f;
        constexpr uint32_t kThrees[8] = {1u << 29, 1u << 26, 1u << 23, 1u << 20,
                                         1u << 13, 1u << 10, 1u << 7,  1u << 4};
        odd_scales(d, floats_of_fields(static_cast<uint32_t>(words), kThrees, 3), scale);
        odd_scales(d, floats_of_fields(static_cast<uint32_t>(words >> 32), kThrees, 3), scale + 8);
        set_offsets(kZero, 16, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const uint8_t* low = block + group * 4;
        const unsigned halves = read<uint16_t>(block + 32 + group * 2);
        const uint64_t* points = kIq1Grid.points;
        const B all = take_words(
            points + (low[0] | (halves << 8 & 0x700)), points + (low[1] | (halves << 4 & 0x700)),
            points + (low[2] | (halves & 0x700)), points + (low[3] | (halves >> 4 & 0x700)));
        // Two more where the bit of the sign is 0: bits 3 and 7 of either byte.
        const uint32_t twice = (halves & 0xFF) * 0x0101 | (halves >> 8) * 0x01010000;
        constexpr uint64_t kBits3 = 0x0808080808080808, kBits7 = 0x8080808080808080;
        const B signs = bits_and(spread_bytes(twice), join_words(kBits3, kBits7, kBits3, kBits7));
        return add(all, bits_and(equal(signs, splat_byte(0)), splat_byte(2)));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

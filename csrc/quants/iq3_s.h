// iq3_s: half-precision d, 64 bytes of the low 8 bits of the points' numbers (4 weights each), 8 of
// their ninth bits, 32 of signs (bit i for weight i, one is negative), 4 of 8 s, low half first.
// w = d * (2 s + 1) * sign * point.
#pragma once

#include "grids.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// 15 more than the points' weights. They are even, so that 30 less one of them is its bits 1..4
// flipped.
constexpr int8_t kIq3SLevels[16] = {16, 18, 20, 22, 24, 26, 28, 30};
constexpr auto kIq3SGrid = make_pair_grid<512>(4096, 4, kIq3SLevels);

struct iq3_s {
    static constexpr int kBlock = 256, kBytes = 110, kScaleGroup = 32, kZero = 15;
    static constexpr int kMost = 30;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const F8 s = floats_of_fields(read<uint32_t>(block + 106), kNibbles, 4);
        odd_scales(load_half_at(block), s, scale);
        set_offsets(kZero, 8, scale, offset);
    }
    // The numbers of points 0, 2, 4, 6 and 1, 3, 5, 7 of a group, 16 bits each.
    struct Numbers {
        uint64_t even, odd;
    };
    OCTAVO_INLINE static Numbers numbers(const uint8_t* block, int group) {
        constexpr uint64_t kBytesOf16 = 0x00FF00FF00FF00FF, kNinthBits = 0x0100010001000100;
        // Bits 0, 2, 4, 6 of a byte -> the ninth bits of four numbers of 16 bits; half of it for 1,
        // 3, 5, 7.
        constexpr uint64_t kSpread = 0x0004001000400100;
        const auto low = read<uint64_t>(block + 2 + group * 8);
        const uint64_t high = block[66 + group] * kSpread;
        return {(low & kBytesOf16) | (high & kNinthBits),
                (low >> 8 & kBytesOf16) | (high >> 1 & kNinthBits)};
    }
    OCTAVO_INLINE static void put_points(const uint8_t* a, const uint8_t* b, uint64_t* out,
                                         int step) {
        for (int group = 0; group < 8; ++group) {
            Numbers first = numbers(a, group), second = numbers(b, group);
            for (int i = 0; i < 4; ++i, out += 2 * step) {
                out[0] = pair_of(kIq3SGrid, first.even >> 16 * i & 0xFFFF,
                                 second.even >> 16 * i & 0xFFFF);
                out[step] =
                    pair_of(kIq3SGrid, first.odd >> 16 * i & 0xFFFF, second.odd >> 16 * i & 0xFFFF);
            }
        }
    }
    OCTAVO_INLINE static B signs(const uint8_t* block) { return load_bytes(block + 74); }
    template <class V>
    OCTAVO_INLINE static V signed_word(V points, V mask) {
        return bits_xor(points, bits_and(mask, splat_as(mask, 2 * kZero)));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

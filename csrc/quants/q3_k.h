// q3_k: 32 bytes of third bits (bit g for group g), 64 of the lower two as in q2_k, 12 of s,
// half-precision d. Of the 16 s the low four bits come first (8 bytes: low halves 0..7, high halves
// 8..15), then the high two (4 bytes of four). w = d * (s - 32) * (q - 4).
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

struct q3_k {
    static constexpr int kBlock = 256, kBytes = 110, kScaleGroup = 16, kZero = 4;
    static constexpr int kMost = 7;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const auto low = read<uint64_t>(block + 96);
        const uint64_t high = read<uint32_t>(block + 104);
        const F8 d = splat8(load_half_at(block + 108));
        for (int i = 0; i < 2; ++i) {
            const uint64_t pairs = high >> 4 * i;
            const uint64_t top = (pairs & 0x03030303) | (pairs >> 2 & 0x03030303) << 32;
            const uint64_t s = (low >> 4 * i & 0x0F0F0F0F0F0F0F0F) | top << 4;
            const F8 level = mul(d, sub(floats_of_bytes(s), splat8(32.0f)));
            store(scale + 8 * i, level);
            store(offset + 8 * i, mul(level, splat8(-kZero)));
        }
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int, float* scale,
                                          float*) {
        // The last 14 bytes of a block, after two that do not count.
        IntLanes words[4];
        load_words(spans, 94, words);
        const auto joined = [&](int i) {
            return bits_or(shifted_down(words[i], 16), shifted_up(words[i + 1], 16));
        };
        const IntLanes low[2] = {joined(0), joined(1)}, high = joined(2);
        const FloatLanes d = floats_of_high_halves(words[3]);
        for (int i = 0; i < 4; ++i) {
            const IntLanes s =
                bits_or(bits_and(shifted_down(low[i % 2], i / 2 * 4), 0x0F0F0F0F),
                        shifted_up(bits_and(shifted_down(high, 2 * i), 0x03030303), 4));
            for (int j = 0; j < 4; ++j)
                store(scale + (4 * i + j) * kPanelRows,
                      mul(d, sub(floats_of_bytes(s, j), splat_lanes(32.0f))));
        }
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const B low = field(load_bytes(block + 32 + group / 4 * 32), group % 4 * 2, 3);
        return bits_or(low, field(load_bytes(block), group - 2, 4));
    }

    static constexpr int kPackGroups = 4, kPackLoads = 2;
    OCTAVO_INLINE static B packed(const uint8_t* span, int pack, int i) {
        return i == 0 ? load_bytes(span + 32 + pack * 32) : field(load_bytes(span), 4 * pack, 15);
    }
    template <class V>
    OCTAVO_INLINE static V word(const V (*turned)[8], int group, int i) {
        return bits_or(field(turned[0][i], group * 2, 3), field(turned[1][i], group - 2, 4));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

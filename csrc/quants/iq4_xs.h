// iq4_xs: half-precision d, 2 bytes of the high two bits of 8 s, 4 of their low four, 128 of q: 16
// for each group, as in q4_0. w = d * (s - 32) * table[q], the table of iq4_nl.
#pragma once

#include "lanes.h"
#include "quants/iq4_nl.h"

namespace octavo::OCTAVO_LEVEL {

struct iq4_xs {
    static constexpr int kBlock = 256, kBytes = 136, kScaleGroup = 32;
    static constexpr bool kSigned = true, kOffset = false;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float*) {
        const uint64_t high = spread_pairs(read<uint16_t>(block + 2));
        const uint64_t s = spread_nibbles(read<uint32_t>(block + 4)) | high << 4;
        const F8 level = sub(floats_of_bytes(s), splat8(32.0f));
        store(scale, mul(splat8(load_half_at(block)), level));
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int, float* scale,
                                          float*) {
        IntLanes words[4];
        load_words(spans, 0, words);
        const FloatLanes d = floats_of_low_halves(words[0]);
        for (int i = 0; i < 8; ++i) {
            const IntLanes low = bits_and(shifted_down(words[1], 4 * i), 15);
            const IntLanes high = bits_and(shifted_down(words[0], 16 + 2 * i), 3);
            const FloatLanes s = to_float(bits_or(low, shifted_up(high, 4)));
            store(scale + i * kPanelRows, mul(d, sub(s, splat_lanes(32.0f))));
        }
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        return lookup(load_16_twice(kIq4Table), load_nibbles(block + 8 + group * 16));
    }

    static constexpr int kPackGroups = 2, kPackLoads = 1;
    OCTAVO_INLINE static B packed(const uint8_t* span, int pack, int) {
        return load_bytes(span + 8 + pack * 32);
    }
    template <class V>
    OCTAVO_INLINE static V word(const V (*turned)[8], int group, int i) {
        return lookup(kIq4Table, nibble_word(turned[0], group, i));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

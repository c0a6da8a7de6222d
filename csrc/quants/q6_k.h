// q6_k: 128 bytes of the low four bits of q, 64 of the high two, 16 int8 s, half-precision d. Each
// 64 bytes of low bits are 128 weights, low halves first; each 32 bytes of high bits belong to the
// same 128, lowest two bits first. w = d * s * (q - 32).
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

struct q6_k {
    static constexpr int kBlock = 256, kBytes = 210, kScaleGroup = 16, kZero = 32;
    static constexpr int kMost = 63;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const F8 d = splat8(load_half_at(block + 208));
        for (int i = 0; i < 16; i += 8) {
            const F8 s = mul(d, load8_int8(reinterpret_cast<const int8_t*>(block + 192 + i)));
            store(scale + i, s);
            store(offset + i, mul(s, splat8(-kZero)));
        }
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int, float* scale,
                                          float*) {
        const FloatLanes d = load_halves(spans, 208);
        IntLanes words[4];
        load_words(spans, 192, words);
        for (int i = 0; i < 16; ++i)
            store(scale + i * kPanelRows, mul(d, floats_of_signed_bytes(words[i / 4], i % 4)));
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        const int half = group / 4, part = group % 4;
        const B low = load_bytes(block + half * 64 + part % 2 * 32);
        const B high = load_bytes(block + 128 + half * 32);
        return bits_or(field(low, part / 2 * 4, 15), field(high, 2 * part - 4, 0x30));
    }

    static constexpr int kPackGroups = 4, kPackLoads = 3;
    OCTAVO_INLINE static B packed(const uint8_t* span, int pack, int i) {
        return load_bytes(i < 2 ? span + pack * 64 + i * 32 : span + 128 + pack * 32);
    }
    template <class V>
    OCTAVO_INLINE static V word(const V (*turned)[8], int group, int i) {
        return bits_or(field(turned[group % 2][i], group / 2 * 4, 15),
                       field(turned[2][i], 2 * group - 4, 0x30));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

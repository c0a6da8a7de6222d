// q4_k: half-precision d and dmin, 12 bytes of 6-bit s and m for each of 8 groups, 128 bytes of q:
// each 32 bytes are two groups, low halves first. w = d * s * q - dmin * m.
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

// d * s and -dmin * m of 8 groups. The 12 bytes are three words of four: the top bits of the first
// two words' bytes belong to groups 4..7, whose low bits are the halves of the third.
OCTAVO_INLINE void read_levels(const uint8_t* block, float* scale, float* offset) {
    const uint64_t s = read<uint32_t>(block + 4), m = read<uint32_t>(block + 8);
    const uint64_t low = read<uint32_t>(block + 12);
    const uint64_t s_high = (low & 0x0F0F0F0F) | (s >> 2 & 0x30303030);
    const uint64_t m_high = (low >> 4 & 0x0F0F0F0F) | (m >> 2 & 0x30303030);
    const F8 d = splat8(load_half_at(block)), dmin = splat8(-load_half_at(block + 2));
    store(scale, mul(d, floats_of_bytes((s & 0x3F3F3F3F) | s_high << 32)));
    store(offset, mul(dmin, floats_of_bytes((m & 0x3F3F3F3F) | m_high << 32)));
}

// The same of 8 rows, row after row: of group i at scale + i * kPanelRows.
OCTAVO_INLINE void lane_levels(const uint8_t* const blocks[kPanelRows], float* scale,
                               float* offset) {
    IntLanes words[4];
    load_words(blocks, 0, words);
    const FloatLanes d = floats_of_low_halves(words[0]);
    const FloatLanes dmin = sub(splat_lanes(0.0f), floats_of_high_halves(words[0]));
    const auto high = [](IntLanes low, IntLanes top) {
        return bits_or(bits_and(low, 0x0F0F0F0F), bits_and(shifted_down(top, 2), 0x30303030));
    };
    const IntLanes s[2] = {bits_and(words[1], 0x3F3F3F3F), high(words[3], words[1])};
    const IntLanes m[2] = {bits_and(words[2], 0x3F3F3F3F),
                           high(shifted_down(words[3], 4), words[2])};
    for (int i = 0; i < 8; ++i) {
        store(scale + i * kPanelRows, mul(d, floats_of_bytes(s[i / 4], i % 4)));
        store(offset + i * kPanelRows, mul(dmin, floats_of_bytes(m[i / 4], i % 4)));
    }
}

struct q4_k {
    static constexpr int kBlock = 256, kBytes = 144, kScaleGroup = 32;
    static constexpr int kMost = 15;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        read_levels(block, scale, offset);
    }
    OCTAVO_INLINE static void lane_scales(const uint8_t* const spans[kPanelRows], int, float* scale,
                                          float* offset) {
        lane_levels(spans, scale, offset);
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        return field(load_bytes(block + 16 + group / 2 * 32), group % 2 * 4, 15);
    }

    static constexpr int kPackGroups = 2, kPackLoads = 1;
    OCTAVO_INLINE static B packed(const uint8_t* span, int pack, int) {
        return load_bytes(span + 16 + pack * 32);
    }
    template <class V>
    OCTAVO_INLINE static V word(const V (*turned)[8], int group, int i) {
        return field(turned[0][i], group * 4, 15);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

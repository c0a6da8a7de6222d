// mxfp4: an exponent byte e, then 16 bytes as in q4_0. w = 2^(e - 128) * (table[q] - 12), where the
// table holds 4-bit floats, doubled.
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

constexpr uint8_t kFp4Table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// 2^(e - 128)
struct PowersOfTwo {
    float values[256] = {};

    constexpr PowersOfTwo() {
        values[0] = 0x1p-128f;
        for (int e = 1; e < 256; ++e) values[e] = 2 * values[e - 1];
    }
};
constexpr PowersOfTwo kPowersOfTwo;

struct mxfp4 {
    static constexpr int kBlock = 32, kBytes = 17, kScaleGroup = 32, kZero = 12;
    static constexpr int kMost = 24;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        scale[0] = kPowersOfTwo.values[block[0]];
        offset[0] = -kZero * scale[0];
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int) {
        return lookup(load_16_twice(kFp4Table), load_nibbles(block + 1));
    }

    static constexpr int kHalvesAt = 1;
    template <class V>
    OCTAVO_INLINE static V value(V halves) {
        return lookup(kFp4Table, halves);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// nvfp4: 4 bytes of s as unsigned 8-bit floats (4 bits of exponent, 3 of mantissa), 32 of q: 8 for
// each group of 16, low halves first. w = s / 2 * (table[q] - 12), the table of mxfp4.
#pragma once

#include "lanes.h"
#include "quants/mxfp4.h"

namespace octavo::OCTAVO_LEVEL {

// s / 2 for each byte, whose top bit is ignored. 127 would be NaN and counts as zero.
struct HalfScales {
    float values[256] = {};

    constexpr HalfScales() {
        for (int code = 0; code < 127; ++code) {
            const int exponent = code >> 3;
            float value = exponent == 0 ? (code & 7) * 0x1p-10f : (8 + (code & 7)) * 0x1p-10f;
            for (int i = 1; i < exponent; ++i) value *= 2;
            values[code] = values[code + 128] = value;
        }
    }
};
constexpr HalfScales kHalfScales;

struct nvfp4 {
    static constexpr int kBlock = 64, kBytes = 36, kScaleGroup = 16, kZero = 12;
    static constexpr int kMost = 24;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        for (int i = 0; i < 4; ++i) {
            scale[i] = kHalfScales.values[block[i]];
            offset[i] = -kZero * scale[i];
        }
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        return lookup(load_16_twice(kFp4Table), load_nibbles_by_8(block + 4 + group * 16));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

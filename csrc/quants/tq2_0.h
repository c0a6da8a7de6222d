// tq2_0: 64 bytes of q as in q2_k, half-precision d. w = d * (q - 1).
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

struct tq2_0 {
    static constexpr int kBlock = 256, kBytes = 66, kScaleGroup = 32, kZero = 1;
    static constexpr int kMost = 3;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const F8 d = splat8(load_half_at(block + 64));
        store(scale, d);
        store(offset, mul(d, splat8(-kZero)));
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        return field(load_bytes(block + group / 4 * 32), group % 4 * 2, 3);
    }

    static constexpr int kPackGroups = 4, kPackLoads = 1;
    OCTAVO_INLINE static B packed(const uint8_t* span, int pack, int) {
        return load_bytes(span + pack * 32);
    }
    template <class V>
    OCTAVO_INLINE static V word(const V (*turned)[8], int group, int i) {
        return field(turned[0][i], group * 2, 3);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

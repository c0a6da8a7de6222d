// q2_k: 16 bytes of s (low half) and m (high half), 64 of q, half-precision d and dmin. Each 32
// bytes of q are 128 weights, the lowest two bits of all first. w = d * s * q - dmin * m.
#pragma once

#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

struct q2_k {
    static constexpr int kBlock = 256, kBytes = 84, kScaleGroup = 16;
    static constexpr int kMost = 3;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0F;
        const F8 d = splat8(load_half_at(block + 80)), dmin = splat8(-load_half_at(block + 82));
        for (int i = 0; i < 16; i += 8) {
            const auto levels = read<uint64_t>(block + i);
            store(scale + i, mul(d, floats_of_bytes(levels & kLow)));
            store(offset + i, mul(dmin, floats_of_bytes(levels >> 4 & kLow)));
        }
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        return field(load_bytes(block + 16 + group / 4 * 32), group % 4 * 2, 3);
    }

    static constexpr int kPackGroups = 4, kPackLoads = 1;
    OCTAVO_INLINE static B packed(const uint8_t* span, int pack, int) {
        return load_bytes(span + 16 + pack * 32);
    }
    template <class V>
    OCTAVO_INLINE static V word(const V (*turned)[8], int group, int i) {
        return field(turned[0][i], group * 2, 3);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// tq1_0: 52 bytes of base-3 digits, half-precision d. w = d * (q - 1).
// A byte is a fraction of 256: its first digit is byte * 3 / 256, and byte * 3 mod 256 brings up
// the next. The first 32 bytes hold the first digits of all, then the second, and so on to five;
// likewise the next 16; the last 4 hold four digits each.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct tq1_0 {
    static constexpr int kBlock = 256, kBytes = 54, kScaleGroup = 32, kZero = 1;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const float d = load_half_at(block + 52);
        store(scale, splat8(d));
        store(offset, splat8(-kZero * d));
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        if (group < 5) return leading_digits(skip_digits(load_bytes(block), group));
        // 16 weights a digit from here on.
        uint8_t bytes[32];
        for (int i = 0; i < 32; ++i) bytes[i] = advanced_byte(block + 32, group * 32 - 160 + i);
        return leading_digits(load_bytes(bytes));
    }

  private:
    OCTAVO_INLINE static B skip_digits(B bytes, int n) {
        for (int i = 0; i < n; ++i) bytes = add(bytes, add(bytes, bytes));
        return bytes;
    }
    OCTAVO_INLINE static B leading_digits(B bytes) {
        // byte * 3 reaches 256 at 86 and 512 at 171.
        return sub(sub(splat_byte(0), at_least(bytes, 86)), at_least(bytes, 171));
    }
    // The byte that holds weight 160 + i, with that weight's digit in front.
    static uint8_t advanced_byte(const uint8_t* last_20, int i) {
        constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
        if (i < 80) return static_cast<uint8_t>(last_20[i % 16] * kPowers[i / 16]);
        return static_cast<uint8_t>(last_20[16 + i % 4] * kPowers[(i - 80) / 4]);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

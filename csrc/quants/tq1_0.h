// tq1_0: 52 bytes of base-3 digits, half-precision d. w = d * (q - 1).
// A byte is a fraction of 256: its first digit is byte * 3 / 256, and byte * 3 mod 256 brings up
// the next. The first 32 bytes hold the first digits of all, then the second, and so on to five;
// likewise the next 16; the last 4 hold four digits each.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct tq1_0 {
    static constexpr int kBlock = 256, kBytes = 54, kScaleGroup = 32, kZero = 1;
    static constexpr int kMost = 2;
    static constexpr bool kSigned = false, kOffset = true;

    OCTAVO_INLINE static void scales(const uint8_t* block, float* scale, float* offset) {
        const float d = load_half_at(block + 52);
        store(scale, splat8(d));
        store(offset, splat8(-kZero * d));
    }
    OCTAVO_INLINE static B values(const uint8_t* block, int group) {
        constexpr uint64_t kPowers[] = {1, 3, 9, 27, 81};
        if (group < 5) {
            B bytes = load_bytes(block);
            for (int i = 0; i < group; ++i) bytes = add(bytes, add(bytes, bytes));
            return leading_digits(bytes);
        }
        const auto a = read<uint64_t>(block + 32), b = read<uint64_t>(block + 40);
        if (group < 7) {
            const uint64_t p = kPowers[2 * group - 10], q = kPowers[2 * group - 9];
            return leading_digits(join_words(times(a, p), times(b, p), times(a, q), times(b, q)));
        }
        const uint64_t last = read<uint32_t>(block + 48);
        return leading_digits(join_words(times(a, 81), times(b, 81), last | times(last, 3) << 32,
                                         times(last, 9) | times(last, 27) << 32));
    }

  private:
    // The next digits of 8 bytes: each byte times a power of 3, mod 256.
    OCTAVO_INLINE static uint64_t times(uint64_t bytes, uint64_t power) {
        constexpr uint64_t kEven = 0x00FF00FF00FF00FF;
        return ((bytes & kEven) * power & kEven) | ((bytes >> 8 & kEven) * power & kEven) << 8;
    }
    OCTAVO_INLINE static B leading_digits(B bytes) {
        // byte * 3 reaches 256 at 86 and 512 at 171.
        return sub(sub(splat_byte(0), at_least(bytes, 86)), at_least(bytes, 171));
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// The codebooks of the iq1, iq2 and iq3 formats as tables, and their rule for signs. The build
// makes grid_bytes.inc from src/octavo/quants/_grids.bin; _grids.py says what is in it.
#pragma once

#include <cstdint>

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr uint8_t kGridBytes[] = {
#include "grid_bytes.inc"
};

// A point's weights in the bytes of a number, the first weight lowest.
template <class Word, int kPoints>
struct Grid {
    Word points[kPoints];
};

// Digits of `digit_bits` bits from byte `start` on; a digit stands for a level.
template <class Word, int kPoints>
constexpr Grid<Word, kPoints> make_grid(int start, int digit_bits, const int8_t* levels) {
    Grid<Word, kPoints> grid{};
    constexpr int kWeights = sizeof(Word);
    const int digits_per_byte = 8 / digit_bits;
    for (int i = 0; i < kPoints * kWeights; ++i) {
        const int byte = kGridBytes[start + i / digits_per_byte];
        const int digit = byte >> (i % digits_per_byte * digit_bits) & ((1 << digit_bits) - 1);
        grid.points[i / kWeights] |= static_cast<Word>(static_cast<uint8_t>(levels[digit]))
                                     << (i % kWeights * 8);
    }
    return grid;
}

constexpr int8_t kIq2Levels[] = {8, 25, 43, 0};

// Two points of 4 weights in one number.
OCTAVO_INLINE uint64_t pair(uint32_t low, uint32_t high) {
    return low | static_cast<uint64_t>(high) << 32;
}

// unit * (2 s + 1) for the 8 s in the bytes of `levels`, lowest first.
OCTAVO_INLINE void odd_scales(float unit, uint64_t levels, float* scale) {
    const F8 s = floats_of_bytes(levels);
    store(scale, mul(splat8(unit), add(add(s, s), splat8(1.0f))));
}

// The upper halves of 8 bytes, `stride` apart.
OCTAVO_INLINE uint64_t upper_halves(const uint8_t* p, int stride) {
    uint64_t levels = 0;
    for (int i = 0; i < 8; ++i) levels |= static_cast<uint64_t>(p[i * stride] >> 4) << (8 * i);
    return levels;
}

// Offsets of values that are `zero_point` too high.
OCTAVO_INLINE void set_offsets(int zero_point, int n, const float* scale, float* offset) {
    const F8 factor = splat8(static_cast<float>(-zero_point));
    for (int i = 0; i < n; i += 8) store(offset + i, mul(load8(scale + i), factor));
}

// Four sign numbers of 7 bits in the bytes of `numbers` -> bit i is set where weight i is
// negative. The eighth sign of a number makes the count of negative weights even.
OCTAVO_INLINE uint32_t even_signs(uint32_t numbers) {
    uint32_t parity = numbers ^ (numbers >> 4 & 0x0F0F0F0F);
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return numbers | (parity & 0x01010101) << 7;
}

// Four numbers of 7 bits, lowest first, in the bytes of the result.
OCTAVO_INLINE uint32_t spread_sevens(uint32_t bits) {
    return (bits & 0x7F) | (bits << 1 & 0x7F00) | (bits << 2 & 0x7F0000) | (bits << 3 & 0x7F000000);
}

}  // namespace octavo::OCTAVO_LEVEL

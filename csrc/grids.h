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

// A grid of 4 weights a point, for two rows at a time: the second's points in the upper halves.
template <int kPoints>
struct PairGrid {
    uint32_t low[kPoints];
    uint64_t high[kPoints];
};

template <int kPoints>
constexpr PairGrid<kPoints> make_pair_grid(int start, int digit_bits, const int8_t* levels) {
    const auto grid = make_grid<uint32_t, kPoints>(start, digit_bits, levels);
    PairGrid<kPoints> pairs{};
    for (int i = 0; i < kPoints; ++i) {
        pairs.low[i] = grid.points[i];
        pairs.high[i] = static_cast<uint64_t>(grid.points[i]) << 32;
    }
    return pairs;
}

template <int kPoints>
OCTAVO_INLINE uint64_t pair_of(const PairGrid<kPoints>& grid, uint64_t first, uint64_t second) {
    return grid.low[first] | grid.high[second];
}

constexpr int8_t kIq2Levels[] = {8, 25, 43, 0};

// For floats_of_fields: eight numbers of 4 bits, lowest first.
constexpr uint32_t kNibbles[8] = {1u << 28, 1u << 24, 1u << 20, 1u << 16,
                                  1u << 12, 1u << 8,  1u << 4,  1u};

// unit * (2 s + 1)
OCTAVO_INLINE void odd_scales(float unit, F8 s, float* scale) {
    store(scale, mul(splat8(unit), add(add(s, s), splat8(1.0f))));
}

// Offsets of values that are `zero_point` too high.
OCTAVO_INLINE void set_offsets(int zero_point, int n, const float* scale, float* offset) {
    const F8 factor = splat8(static_cast<float>(-zero_point));
    for (int i = 0; i < n; i += 8) store(offset + i, mul(load8(scale + i), factor));
}

// Signs of 8 weights by a number of 7 bits, as masks: 0xFF where a weight is negative. Bit i is for
// weight i; the eighth makes the count of negative weights even.
struct EvenSigns {
    uint64_t masks[128];
};

constexpr EvenSigns make_even_signs() {
    EvenSigns signs{};
    for (int number = 0; number < 128; ++number) {
        int n_negative = 0;
        for (int i = 0; i < 8; ++i) {
            const bool is_negative = i < 7 ? number >> i & 1 : n_negative & 1;
            n_negative += is_negative;
            if (is_negative) signs.masks[number] |= uint64_t{0xFF} << (i * 8);
        }
    }
    return signs;
}

constexpr EvenSigns kEvenSigns = make_even_signs();

// The same as bits, for 8 words of four numbers of 7 bits at `words`: four weights' bytes a word.
OCTAVO_INLINE B even_sign_bits(const uint8_t* words) {
    const I w = load_integers(reinterpret_cast<const int32_t*>(words));
    // Bit i: whether the count of bits i .. i + 6 is odd.
    I odd = bits_xor(bits_xor(w, shifted_down(w, 1)), shifted_down(w, 2));
    odd = bits_xor(bits_xor(odd, shifted_down(odd, 3)), shifted_down(w, 6));
    I signs = zero_integers();
    for (int i = 0; i < 4; ++i) {
        const I seven = bits_and(shifted_up(w, i), 0x7Fu << 8 * i);
        const I eighth = bits_and(shifted_up(odd, 7 + i), 0x80u << 8 * i);
        signs = bits_or(signs, bits_or(seven, eighth));
    }
    return bytes_of(signs);
}

// The masks of 32 weights, by four numbers in the lowest 28 bits of `numbers`.
OCTAVO_INLINE B even_signs(uint32_t numbers) {
    const uint64_t* masks = kEvenSigns.masks;
    return take_words(masks + (numbers & 0x7F), masks + (numbers >> 7 & 0x7F),
                      masks + (numbers >> 14 & 0x7F), masks + (numbers >> 21 & 0x7F));
}

}  // namespace octavo::OCTAVO_LEVEL

// Weight rows as the lanes of vectors, 16 on AVX-512 and 8 elsewhere: the words of the products of
// weights and tokens, and the size of the tile of results that matmul holds in registers.
#pragma once

#include "simd.h"
#if defined(OCTAVO_LEVEL_avx512)
#include "lanes_avx512.h"
#endif

namespace octavo::OCTAVO_LEVEL {

#if !defined(OCTAVO_LEVEL_avx512)

constexpr int kPanelRows = 8;
#if defined(OCTAVO_LEVEL_avx_vnni) || defined(OCTAVO_LEVEL_avx2)
constexpr int kTilePanels = 2;
constexpr int kTileTokens = 3;
#else
constexpr int kTilePanels = 1;
constexpr int kTileTokens = 4;
#endif

using IntLanes = I;
using FloatLanes = F8;
using WeightLanes = B;
using TokenWord = B;

OCTAVO_INLINE FloatLanes load_lanes(const float* p) {
    return load8(p);
}
OCTAVO_INLINE FloatLanes splat_lanes(float x) {
    return splat8(x);
}
OCTAVO_INLINE WeightLanes load_weights(const void* p) {
    return load_bytes(p);
}
OCTAVO_INLINE FloatLanes load_some(const float* p, int n) {
    float lanes[kPanelRows] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load8(lanes);
}
OCTAVO_INLINE void store_some(float* p, FloatLanes a, int n) {
    float lanes[kPanelRows];
    store(lanes, a);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
OCTAVO_INLINE WeightLanes flip(WeightLanes a) {
    return bits_xor(a, splat_byte(0x80));
}
OCTAVO_INLINE WeightLanes minus(WeightLanes a, uint8_t x) {
    return sub(a, splat_byte(x));
}
OCTAVO_INLINE IntLanes minus(IntLanes a, IntLanes b) {
    return sub(a, b);
}
OCTAVO_INLINE WeightLanes lookup(const void* table, WeightLanes index) {
    return lookup(load_16_twice(table), index);
}
OCTAVO_INLINE FloatLanes load_halves(const uint8_t* const p[kPanelRows], int at) {
    return load_8_halves(p, at);
}
OCTAVO_INLINE IntLanes load_word_of_rows(const uint8_t* const p[kPanelRows], int at) {
    return load_word_of_8(p, at);
}
// What begins the blocks of a span of 32 weights each, `kStep` bytes apart: 4 bytes of block i of
// all rows in out[i] ..
template <int kStep>
OCTAVO_INLINE void load_headers(const uint8_t* const rows[kPanelRows], int n_blocks,
                                IntLanes out[8]) {
    for (int i = 0; i < n_blocks; ++i) out[i] = load_word_of_rows(rows, i * kStep);
}
// .. or a half-precision number.
template <int kStep>
OCTAVO_INLINE void load_half_headers(const uint8_t* const rows[kPanelRows], int n_blocks,
                                     FloatLanes out[8]) {
    for (int i = 0; i < n_blocks; ++i) out[i] = load_halves(rows, i * kStep);
}
// Of each lane's bits 4 i .. 4 i + 3, as bytes: 0xFF for a bit that is set.
OCTAVO_INLINE WeightLanes mask_of_nibble(WeightLanes bits, int i) {
    const uint64_t byte = static_cast<uint64_t>(i / 2) * 0x0101010101010101u;
    const uint64_t low = 0x0404040400000000u + byte, high = 0x0C0C0C0C08080808u + byte;
    const uint64_t bit = i % 2 == 0 ? 0x0804020108040201u : 0x8040201080402010u;
    const WeightLanes bytes = lookup(bits, join_words(low, high, low, high));
    const WeightLanes chosen = join_words(bit, bit, bit, bit);
    return equal(bits_and(bytes, chosen), chosen);
}

#if defined(OCTAVO_LEVEL_baseline)
OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 4))};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    const __m128i words = _mm_set1_epi32(static_cast<int>(word));
    return {words, words};
}
OCTAVO_INLINE IntLanes splat_integer(int32_t x) {
    return {_mm_set1_epi32(x), _mm_set1_epi32(x)};
}
#elif defined(OCTAVO_LEVEL_neon)
OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {vld1q_s32(p), vld1q_s32(p + 4)};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    const uint8x16_t words = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return {words, words};
}
OCTAVO_INLINE IntLanes splat_integer(int32_t x) {
    return {vdupq_n_s32(x), vdupq_n_s32(x)};
}
#else
OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    return {_mm256_set1_epi32(static_cast<int>(word))};
}
OCTAVO_INLINE IntLanes splat_integer(int32_t x) {
    return {_mm256_set1_epi32(x)};
}
#endif

// acc += int8 weights times a token's word, which is flipped by kFlip.
OCTAVO_INLINE IntLanes dot_lanes(IntLanes acc, WeightLanes w, TokenWord x) {
#if defined(OCTAVO_LEVEL_avx_vnni)
    return {_mm256_dpbusd_avx_epi32(acc.v, x.v, w.v)};
#elif defined(OCTAVO_LEVEL_neon)
    return dot_unsigned(acc, w, x);
#else
    return add(acc, widened(pair_sums_signed(w, x)));
#endif
}
#if defined(OCTAVO_LEVEL_avx_vnni) || defined(OCTAVO_LEVEL_neon)
OCTAVO_INLINE IntLanes dot_weights(IntLanes acc, WeightLanes w, TokenWord x) {
    return dot_unsigned(acc, w, x);
}
#endif

// 32 bytes of each row -> 8 words of four, rows in the lanes.
#if defined(OCTAVO_LEVEL_avx_vnni) || defined(OCTAVO_LEVEL_avx2)
OCTAVO_INLINE void turn_rows(const B rows[kPanelRows], WeightLanes words[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(rows[i].v, rows[i + 1].v);
        a[i + 1] = _mm256_unpackhi_epi32(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        words[i] = {_mm256_permute2x128_si256(b[i], b[i + 4], 0x20)};
        words[i + 4] = {_mm256_permute2x128_si256(b[i], b[i + 4], 0x31)};
    }
}
#else
inline void turn_rows(const B rows[kPanelRows], WeightLanes words[8]) {
    uint32_t in[kPanelRows][8], out[8][kPanelRows];
    for (int row = 0; row < kPanelRows; ++row) store(in[row], rows[row]);
    for (int row = 0; row < kPanelRows; ++row)
        for (int word = 0; word < 8; ++word) out[word][row] = in[row][word];
    for (int word = 0; word < 8; ++word) words[word] = load_bytes(out[word]);
}
#endif

#endif

// Word i of the first or second block, turned over: low halves are weights 0..15, high 16..31.
template <class V>
OCTAVO_INLINE V nibble_word(const V (&turned)[8], int block, int i) {
    return field(turned[block * 4 + i % 4], i / 4 * 4, 15);
}

// Up to so many tokens are multiplied by dot products, more by panels: whichever is quicker, since
// the results are the same.
#if defined(OCTAVO_LEVEL_avx512)
constexpr int kDotTokens = 8;
#else
constexpr int kDotTokens = 2;
#endif

// Where the dot instruction multiplies unsigned by signed bytes, matmul's tokens become unsigned by
// this flip, which adds 128; a panel's `start` takes 128 * (sum of weights) off again.
#if defined(OCTAVO_LEVEL_avx512) || defined(OCTAVO_LEVEL_avx_vnni)
constexpr uint8_t kFlip = 0x80;
#else
constexpr uint8_t kFlip = 0;
#endif

// The sum of the products of `kWords` words. Weights are 0..kMost, or int8 if that is 0.
#if defined(OCTAVO_LEVEL_avx2) || defined(OCTAVO_LEVEL_baseline)

// Products are added in pairs first, in 16 bits; small weights leave room there for several pairs.
template <int kMost, int kWords>
struct WordSums {
    static constexpr int kRoom = kMost == 0 ? 1 : 32767 / (2 * 127 * kMost);
    static constexpr int kSteps = kRoom < kWords ? kRoom : kWords;

    IntLanes total;
    PairSums pairs;

    OCTAVO_INLINE void begin(IntLanes start) {
        total = start;
        pairs = PairSums{};
    }
    OCTAVO_INLINE void add_word(int i, WeightLanes w, TokenWord x) {
        const PairSums products = kMost == 0 ? pair_sums_signed(w, x) : pair_sums(w, x);
        pairs = i % kSteps == 0 ? products : add(pairs, products);
        if (i % kSteps == kSteps - 1 || i == kWords - 1) total = add(total, widened(pairs));
    }
    OCTAVO_INLINE IntLanes sum() const { return total; }
};

template <int kMost, int kWords>
using PanelSums = WordSums<kMost, kWords>;

#else

template <int, int>
struct WordSums {
    IntLanes total;

    OCTAVO_INLINE void begin(IntLanes start) { total = start; }
    template <class X>
    OCTAVO_INLINE void add_word(int, WeightLanes w, const X& x) {
        total = dot_weights(total, w, x);
    }
    OCTAVO_INLINE IntLanes sum() const { return total; }
};

#if defined(OCTAVO_LEVEL_neon)
template <int kMost, int kWords>
using PanelSums = WordSums<kMost, kWords>;
#else
// The same for signed weights and tokens flipped by kFlip.
template <int, int>
struct PanelSums {
    IntLanes total;

    OCTAVO_INLINE void begin(IntLanes start) { total = start; }
    OCTAVO_INLINE void add_word(int, WeightLanes w, TokenWord x) { total = dot_lanes(total, w, x); }
    OCTAVO_INLINE IntLanes sum() const { return total; }
};
#endif

#endif

}  // namespace octavo::OCTAVO_LEVEL

// The words of lanes.h for AVX-512: 16 weight rows.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kPanelRows = 16;
constexpr int kTilePanels = 2;  // 2 x 6 integer and 2 x 6 float accumulators of 32 registers
constexpr int kTileTokens = 6;

struct IntLanes {
    __m512i v;
};
using FloatLanes = F;

OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {_mm512_loadu_si512(p)};
}
OCTAVO_INLINE IntLanes splat_integer(int32_t x) {
    return {_mm512_set1_epi32(x)};
}
OCTAVO_INLINE FloatLanes load_lanes(const float* p) {
    return load(p);
}
OCTAVO_INLINE FloatLanes splat_lanes(float x) {
    return splat(x);
}
OCTAVO_INLINE FloatLanes to_float(IntLanes a) {
    return {_mm512_cvtepi32_ps(a.v)};
}
OCTAVO_INLINE FloatLanes bits_as_float(IntLanes a) {
    return {_mm512_castsi512_ps(a.v)};
}
OCTAVO_INLINE FloatLanes load_some(const float* p, int n) {
    return load_first(p, n);
}
OCTAVO_INLINE void store_some(float* p, FloatLanes a, int n) {
    store_first(p, a, n);
}

// Four weights of each row, four values of one token.
struct WeightLanes {
    __m512i v;
};
struct TokenWord {
    __m512i v;
};
OCTAVO_INLINE WeightLanes load_weights(const void* p) {
    return {_mm512_loadu_si512(p)};
}
OCTAVO_INLINE void store(void* p, WeightLanes a) {
    _mm512_storeu_si512(p, a.v);
}
OCTAVO_INLINE void store_halves(void* low, void* high, WeightLanes a) {
    _mm256_storeu_si256(static_cast<__m256i*>(low), _mm512_castsi512_si256(a.v));
    _mm256_storeu_si256(static_cast<__m256i*>(high), _mm512_extracti64x4_epi64(a.v, 1));
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    return {_mm512_set1_epi32(static_cast<int>(word))};
}
OCTAVO_INLINE IntLanes dot_lanes(IntLanes acc, WeightLanes w, TokenWord x) {
    return {_mm512_dpbusd_epi32(acc.v, x.v, w.v)};
}
OCTAVO_INLINE IntLanes dot_weights(IntLanes acc, WeightLanes w, TokenWord x) {
    return {_mm512_dpbusd_epi32(acc.v, w.v, x.v)};
}
// The same, with a token's word where it lies. GCC 12 would load it first, by an instruction more.
OCTAVO_INLINE IntLanes dot_weights(IntLanes acc, WeightLanes w, const uint32_t& x) {
#if defined(__GNUC__) && !defined(__clang__)
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(w.v), "m"(x));
    return acc;
#else
    return dot_weights(acc, w, splat_word(x));
#endif
}

// What B has, for weights in lanes.
OCTAVO_INLINE WeightLanes bits_or(WeightLanes a, WeightLanes b) {
    return {_mm512_or_si512(a.v, b.v)};
}
OCTAVO_INLINE WeightLanes flip(WeightLanes a) {
    return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
OCTAVO_INLINE WeightLanes minus(WeightLanes a, uint8_t x) {
    return {_mm512_sub_epi8(a.v, _mm512_set1_epi8(static_cast<char>(x)))};
}
OCTAVO_INLINE IntLanes minus(IntLanes a, IntLanes b) {
    return {_mm512_sub_epi32(a.v, b.v)};
}
OCTAVO_INLINE void store(int32_t* p, IntLanes a) {
    _mm512_storeu_si512(p, a.v);
}
OCTAVO_INLINE WeightLanes field(WeightLanes a, int shift, uint8_t mask) {
    const __m512i moved =
        shift < 0 ? _mm512_slli_epi16(a.v, -shift) : _mm512_srli_epi16(a.v, shift);
    return {_mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(mask)))};
}
OCTAVO_INLINE WeightLanes lookup(const void* table, WeightLanes index) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(table));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), index.v)};
}

OCTAVO_INLINE WeightLanes bits_and(WeightLanes a, WeightLanes b) {
    return {_mm512_and_si512(a.v, b.v)};
}
OCTAVO_INLINE WeightLanes bits_xor(WeightLanes a, WeightLanes b) {
    return {_mm512_xor_si512(a.v, b.v)};
}
OCTAVO_INLINE WeightLanes add(WeightLanes a, WeightLanes b) {
    return {_mm512_add_epi8(a.v, b.v)};
}
OCTAVO_INLINE WeightLanes sub(WeightLanes a, WeightLanes b) {
    return {_mm512_sub_epi8(a.v, b.v)};
}
OCTAVO_INLINE WeightLanes splat_as(WeightLanes, uint8_t x) {
    return {_mm512_set1_epi8(static_cast<char>(x))};
}
// Of each lane's bits 4 i .. 4 i + 3, as bytes: 0xFF for a bit that is set.
OCTAVO_INLINE WeightLanes mask_of_nibble(WeightLanes bits, int i) {
    alignas(64) static constexpr uint32_t kMasks[16] = {
        0x00000000, 0x000000FF, 0x0000FF00, 0x0000FFFF, 0x00FF0000, 0x00FF00FF,
        0x00FFFF00, 0x00FFFFFF, 0xFF000000, 0xFF0000FF, 0xFF00FF00, 0xFF00FFFF,
        0xFFFF0000, 0xFFFF00FF, 0xFFFFFF00, 0xFFFFFFFF};
    return {_mm512_permutexvar_epi32(_mm512_srli_epi32(bits.v, 4 * i), _mm512_load_si512(kMasks))};
}

OCTAVO_INLINE __m512i join(B low, B high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low.v), high.v, 1);
}

// a[0..3], rows of words: word i of all rows in a[i], in each quarter of the vector.
OCTAVO_INLINE void turn_quarters(__m512i* a) {
    const __m512i p = _mm512_unpacklo_epi32(a[0], a[1]), q = _mm512_unpackhi_epi32(a[0], a[1]);
    const __m512i r = _mm512_unpacklo_epi32(a[2], a[3]), s = _mm512_unpackhi_epi32(a[2], a[3]);
    a[0] = _mm512_unpacklo_epi64(p, r);
    a[1] = _mm512_unpackhi_epi64(p, r);
    a[2] = _mm512_unpacklo_epi64(q, s);
    a[3] = _mm512_unpackhi_epi64(q, s);
}

// 32 bytes of each row -> 8 words of four, rows in the lanes.
OCTAVO_INLINE void turn_rows(const B rows[kPanelRows], WeightLanes words[8]) {
    __m512i a[8];
    for (int i = 0; i < 4; ++i) {
        a[i] = join(rows[i], rows[i + 4]);
        a[i + 4] = join(rows[i + 8], rows[i + 12]);
    }
    turn_quarters(a);
    turn_quarters(a + 4);
    for (int i = 0; i < 4; ++i) {
        words[i] = {_mm512_shuffle_i32x4(a[i], a[i + 4], 0x88)};
        words[i + 4] = {_mm512_shuffle_i32x4(a[i], a[i + 4], 0xDD)};
    }
}

// What I has, for scales in lanes.
OCTAVO_INLINE IntLanes bits_and(IntLanes a, uint32_t mask) {
    return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(mask)))};
}
OCTAVO_INLINE IntLanes bits_or(IntLanes a, IntLanes b) {
    return {_mm512_or_si512(a.v, b.v)};
}
OCTAVO_INLINE WeightLanes bytes_of(IntLanes a) {
    return {a.v};
}
OCTAVO_INLINE IntLanes shifted_down(IntLanes a, int n) {
    return {_mm512_srli_epi32(a.v, static_cast<unsigned>(n))};
}
OCTAVO_INLINE IntLanes shifted_up(IntLanes a, int n) {
    return {_mm512_slli_epi32(a.v, static_cast<unsigned>(n))};
}
OCTAVO_INLINE FloatLanes floats_of_bytes(IntLanes a, int i) {
    return to_float(i == 3 ? shifted_down(a, 24) : bits_and(shifted_down(a, 8 * i), 255));
}
OCTAVO_INLINE FloatLanes floats_of_signed_bytes(IntLanes a, int i) {
    return to_float(IntLanes{_mm512_srai_epi32(shifted_up(a, 24 - 8 * i).v, 24)});
}
OCTAVO_INLINE FloatLanes floats_of_low_halves(IntLanes a) {
    return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))};
}
OCTAVO_INLINE FloatLanes floats_of_high_halves(IntLanes a) {
    return floats_of_low_halves(shifted_down(a, 16));
}
OCTAVO_INLINE void load_words(const uint8_t* const p[kPanelRows], int at, IntLanes out[4]) {
    __m512i a[4];
    for (int i = 0; i < 4; ++i)
        a[i] =
            join(load_bytes(p[i] + at, p[i + 4] + at), load_bytes(p[i + 8] + at, p[i + 12] + at));
    turn_quarters(a);
    for (int i = 0; i < 4; ++i) out[i] = {a[i]};
}
OCTAVO_INLINE FloatLanes load_halves(const uint8_t* const p[kPanelRows], int at) {
    const __m256 low = load_8_halves(p, at).v, high = load_8_halves(p + 8, at).v;
    return {_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)};
}
OCTAVO_INLINE IntLanes load_word_of_rows(const uint8_t* const p[kPanelRows], int at) {
    return {join(bytes_of(load_word_of_8(p, at)), bytes_of(load_word_of_8(p + 8, at)))};
}

// The words at p, p + kStep .. p + 7 * kStep, or those around them that begin at a multiple of 4
// bytes from p. Nothing is read behind p + 8 * kStep.
template <int kStep>
OCTAVO_INLINE B load_spaced(const uint8_t* p) {
    constexpr int kLast = 3 * kStep / 4;
    if constexpr (kLast < 16) {
        const __m512i at = _mm512_setr_epi32(0, kStep / 4, kStep / 2, kLast, 16, 16 + kStep / 4,
                                             16 + kStep / 2, 16 + kLast, 0, 0, 0, 0, 0, 0, 0, 0);
        const __m512i all =
            _mm512_permutex2var_epi32(_mm512_loadu_si512(p), at, _mm512_loadu_si512(p + 4 * kStep));
        return {_mm512_castsi512_si256(all)};
    } else {
        // Where the second four are read from: not beyond the end.
        constexpr int kFrom = 4 * kStep < 8 * kStep - 128 ? 4 * kStep : 8 * kStep - 128;
        constexpr int kSkip = kStep - kFrom / 4;
        const __m512i at =
            _mm512_setr_epi32(0, kStep / 4, kStep / 2, kLast, kSkip, kSkip + kStep / 4,
                              kSkip + kStep / 2, kSkip + kLast, 0, 0, 0, 0, 0, 0, 0, 0);
        const auto take = [&](const uint8_t* from) {
            return _mm512_castsi512_si256(_mm512_permutex2var_epi32(_mm512_loadu_si512(from), at,
                                                                    _mm512_loadu_si512(from + 64)));
        };
        return {_mm256_blend_epi32(take(p), take(p + kFrom), 0xF0)};
    }
}

// What begins the blocks of a span of 32 weights each, `kStep` bytes apart: 4 bytes of block i of
// all rows in out[i] ..
template <int kStep>
OCTAVO_INLINE void load_headers(const uint8_t* const rows[kPanelRows], int n_blocks,
                                IntLanes out[8]) {
    if (n_blocks < 8) {
        for (int i = 0; i < n_blocks; ++i) out[i] = load_word_of_rows(rows, i * kStep);
        return;
    }
    B headers[kPanelRows];
    WeightLanes turned[8];
    for (int r = 0; r < kPanelRows; ++r) headers[r] = load_spaced<kStep>(rows[r]);
    turn_rows(headers, turned);
    for (int i = 0; i < 8; ++i) out[i] = {turned[i].v};
}
// .. or a half-precision number.
template <int kStep>
OCTAVO_INLINE void load_half_headers(const uint8_t* const rows[kPanelRows], int n_blocks,
                                     FloatLanes out[8]) {
    if (n_blocks < 8) {
        for (int i = 0; i < n_blocks; ++i) out[i] = load_halves(rows, i * kStep);
        return;
    }
    IntLanes words[8];
    load_headers<kStep>(rows, 8, words);
    for (int i = 0; i < 8; ++i)
        out[i] = i * kStep % 4 ? floats_of_high_halves(words[i]) : floats_of_low_halves(words[i]);
}

}  // namespace octavo::OCTAVO_LEVEL

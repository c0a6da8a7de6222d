// Weight rows as the lanes of vectors, 16 on AVX-512 and 8 elsewhere: the words of the products of
// weights and tokens, and the size of the tile of results that matmul holds in registers.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

#if defined(OCTAVO_LEVEL_avx512)

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
        a[i] = join(load_bytes(p[i] + at, p[i + 4] + at), load_bytes(p[i + 8] + at, p[i + 12] + at));
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
        const __m512i all = _mm512_permutex2var_epi32(_mm512_loadu_si512(p), at,
                                                      _mm512_loadu_si512(p + 4 * kStep));
        return {_mm512_castsi512_si256(all)};
    } else {
        // Where the second four are read from: not beyond the end.
        constexpr int kFrom = 4 * kStep < 8 * kStep - 128 ? 4 * kStep : 8 * kStep - 128;
        constexpr int kSkip = kStep - kFrom / 4;
        const __m512i at = _mm512_setr_epi32(
            0, kStep / 4, kStep / 2, kLast, kSkip, kSkip + kStep / 4, kSkip + kStep / 2,
            kSkip + kLast, 0, 0, 0, 0, 0, 0, 0, 0);
        const auto take = [&](const uint8_t* from) {
            return _mm512_castsi512_si256(_mm512_permutex2var_epi32(
                _mm512_loadu_si512(from), at, _mm512_loadu_si512(from + 64)));
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

#else

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
// What begins the blocks of a span of 32 weights each, `kStep` bytes apart: 4 bytes of block i of
// all rows in out[i] ..
template <int kStep>
OCTAVO_INLINE void load_headers(const uint8_t* const rows[kPanelRows], int n_blocks,
                                IntLanes out[8]) {
    for (int i = 0; i < n_blocks; ++i) out[i] = load_word_of_8(rows, i * kStep);
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

// 16 bytes of each of two blocks of 32 weights of 4 bits, `n_bytes` apart.
OCTAVO_INLINE B load_nibble_blocks(const uint8_t* p, int n_bytes) {
    return load_bytes(p, p + n_bytes);
}
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

// F8, B and I of simd.h in one 256-bit register each: AVX2, AVX-VNNI and AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_LEVEL {

inline float half_to_float(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
inline uint16_t float_to_half(float x) {
    return static_cast<uint16_t>(
        _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}

struct F8 {
    __m256 v;
};

OCTAVO_INLINE F8 load8(const float* p) {
    return {_mm256_loadu_ps(p)};
}
OCTAVO_INLINE void store(float* p, F8 a) {
    _mm256_storeu_ps(p, a.v);
}
OCTAVO_INLINE F8 splat8(float x) {
    return {_mm256_set1_ps(x)};
}
OCTAVO_INLINE F8 zero8() {
    return {_mm256_setzero_ps()};
}
OCTAVO_INLINE F8 add(F8 a, F8 b) {
    return {_mm256_add_ps(a.v, b.v)};
}
OCTAVO_INLINE F8 sub(F8 a, F8 b) {
    return {_mm256_sub_ps(a.v, b.v)};
}
OCTAVO_INLINE F8 mul(F8 a, F8 b) {
    return {_mm256_mul_ps(a.v, b.v)};
}
OCTAVO_INLINE F8 fma(F8 a, F8 b, F8 c) {
    return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
OCTAVO_INLINE F8 div(F8 a, F8 b) {
    return {_mm256_div_ps(a.v, b.v)};
}
OCTAVO_INLINE F8 max(F8 a, F8 b) {
    return {_mm256_max_ps(a.v, b.v)};
}
OCTAVO_INLINE F8 abs(F8 a) {
    return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)};
}
OCTAVO_INLINE float sum(F8 a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
OCTAVO_INLINE __m256 largest_of_four(const F8* a) {
    const __m256 ab =
        _mm256_max_ps(_mm256_unpacklo_ps(a[0].v, a[1].v), _mm256_unpackhi_ps(a[0].v, a[1].v));
    const __m256 cd =
        _mm256_max_ps(_mm256_unpacklo_ps(a[2].v, a[3].v), _mm256_unpackhi_ps(a[2].v, a[3].v));
    return _mm256_max_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
}
// Lane i is the largest of a[i].
OCTAVO_INLINE F8 largest_of_each(const F8 (&a)[8]) {
    const __m256 low = largest_of_four(a), high = largest_of_four(a + 4);
    return {_mm256_max_ps(_mm256_permute2f128_ps(low, high, 0x20),
                          _mm256_permute2f128_ps(low, high, 0x31))};
}
OCTAVO_INLINE F8 load8_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}
OCTAVO_INLINE F8 load8_uint8(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))};
}

// The eight bytes of `bytes`, lowest first.
OCTAVO_INLINE F8 floats_of_bytes(uint64_t bytes) {
    const __m128i lanes = _mm_cvtsi64_si128(static_cast<int64_t>(bytes));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(lanes))};
}
OCTAVO_INLINE F8 floats_of_signed_bytes(uint64_t bytes) {
    const __m128i lanes = _mm_cvtsi64_si128(static_cast<int64_t>(bytes));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(lanes))};
}
// table[p[0]], table[p[stride]] ...
OCTAVO_INLINE F8 take_8(const float* table, const uint8_t* p, int stride) {
    return {_mm256_setr_ps(table[p[0]], table[p[stride]], table[p[2 * stride]],
                           table[p[3 * stride]], table[p[4 * stride]], table[p[5 * stride]],
                           table[p[6 * stride]], table[p[7 * stride]])};
}
// Half-precision numbers at p[0] + at, p[1] + at ...
OCTAVO_INLINE F8 load_8_halves(const uint8_t* const p[8], int at) {
    uint16_t halves[8];
    for (int i = 0; i < 8; ++i) std::memcpy(halves + i, p[i] + at, 2);
    const __m128i lanes =
        _mm_setr_epi16(static_cast<int16_t>(halves[0]), static_cast<int16_t>(halves[1]),
                       static_cast<int16_t>(halves[2]), static_cast<int16_t>(halves[3]),
                       static_cast<int16_t>(halves[4]), static_cast<int16_t>(halves[5]),
                       static_cast<int16_t>(halves[6]), static_cast<int16_t>(halves[7]));
    return {_mm256_cvtph_ps(lanes)};
}

struct B {
    __m256i v;
};

OCTAVO_INLINE B load_bytes(const void* p) {
    return {_mm256_loadu_si256(static_cast<const __m256i*>(p))};
}
// 16 bytes from each address, or the same 16 twice.
OCTAVO_INLINE B load_bytes(const void* low, const void* high) {
    const __m128i first = _mm_loadu_si128(static_cast<const __m128i*>(low));
    const __m128i second = _mm_loadu_si128(static_cast<const __m128i*>(high));
    return {_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1)};
}
// Four numbers of 8 bytes.
OCTAVO_INLINE B join_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return {_mm256_setr_epi64x(static_cast<int64_t>(a), static_cast<int64_t>(b),
                               static_cast<int64_t>(c), static_cast<int64_t>(d))};
}
// Numbers of 8 bytes at four addresses.
OCTAVO_INLINE B take_words(const uint64_t* a, const uint64_t* b, const uint64_t* c,
                           const uint64_t* d) {
    const auto two = [](const uint64_t* low, const uint64_t* high) {
        const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low));
        return _mm_castps_si128(
            _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(high)));
    };
    return {_mm256_inserti128_si256(_mm256_castsi128_si256(two(a, b)), two(c, d), 1)};
}
// Eight numbers of 4 bytes.
OCTAVO_INLINE __m128i join_four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    __m128i words = _mm_cvtsi32_si128(static_cast<int>(a));
    words = _mm_insert_epi32(words, static_cast<int>(b), 1);
    words = _mm_insert_epi32(words, static_cast<int>(c), 2);
    return _mm_insert_epi32(words, static_cast<int>(d), 3);
}
OCTAVO_INLINE B join_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f,
                           uint32_t g, uint32_t h) {
    return {_mm256_inserti128_si256(_mm256_castsi128_si256(join_four(a, b, c, d)),
                                    join_four(e, f, g, h), 1)};
}
OCTAVO_INLINE B load_16_twice(const void* p) {
    return {_mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
// 16 bytes as 32 numbers of 4 bits: all low halves, then all high halves.
OCTAVO_INLINE B load_nibbles(const void* p) {
    const __m256i shifted = _mm256_srlv_epi64(load_16_twice(p).v, _mm256_setr_epi64x(0, 0, 4, 4));
    return {_mm256_and_si256(shifted, _mm256_set1_epi8(15))};
}
// The same, 8 bytes at a time.
OCTAVO_INLINE B load_nibbles_by_8(const void* p) {
    const __m256i bytes = _mm256_permute4x64_epi64(
        _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p))), 0x50);
    return {_mm256_and_si256(_mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 4, 0, 4)),
                             _mm256_set1_epi8(15))};
}
OCTAVO_INLINE void store(void* p, B a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), a.v);
}
OCTAVO_INLINE B splat_byte(uint8_t x) {
    return {_mm256_set1_epi8(static_cast<char>(x))};
}
// The same, in the type of the first argument.
OCTAVO_INLINE B splat_as(B, uint8_t x) {
    return splat_byte(x);
}
OCTAVO_INLINE B bits_and(B a, B b) {
    return {_mm256_and_si256(a.v, b.v)};
}
OCTAVO_INLINE B bits_or(B a, B b) {
    return {_mm256_or_si256(a.v, b.v)};
}
OCTAVO_INLINE B bits_xor(B a, B b) {
    return {_mm256_xor_si256(a.v, b.v)};
}
OCTAVO_INLINE B add(B a, B b) {
    return {_mm256_add_epi8(a.v, b.v)};
}
OCTAVO_INLINE B sub(B a, B b) {
    return {_mm256_sub_epi8(a.v, b.v)};
}
OCTAVO_INLINE B equal(B a, B b) {
    return {_mm256_cmpeq_epi8(a.v, b.v)};
}
// Where a byte of `mask` is 0xFF: a; where it is 0: b.
OCTAVO_INLINE B choose(B mask, B a, B b) {
    return {_mm256_blendv_epi8(b.v, a.v, mask.v)};
}
// Each of the four bytes of `bytes` 8 times, the lowest first.
OCTAVO_INLINE B spread_bytes(uint32_t bytes) {
    return {_mm256_shuffle_epi8(
        _mm256_set1_epi32(static_cast<int>(bytes)),
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303))};
}
// 0xFF where bit i is set, for byte i.
OCTAVO_INLINE B mask_of_bits(uint32_t bits) {
#if defined(OCTAVO_LEVEL_avx512)
    return {_mm256_movm_epi8(bits)};
#else
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    return {_mm256_cmpeq_epi8(_mm256_and_si256(spread_bytes(bits).v, bit), bit)};
#endif
}
// 0xFF where a >= bound.
OCTAVO_INLINE B at_least(B a, uint8_t bound) {
    return {_mm256_cmpeq_epi8(_mm256_max_epu8(a.v, splat_byte(bound).v), a.v)};
}
// Each byte moved down by `shift` bits (up, if that is negative), as far as `mask` keeps it; the
// mask must drop the bits that come from a neighbour. |shift| < 8.
OCTAVO_INLINE B field(B a, int shift, uint8_t mask) {
    const __m256i moved =
        shift < 0 ? _mm256_slli_epi16(a.v, -shift) : _mm256_srli_epi16(a.v, shift);
    return {_mm256_and_si256(moved, splat_byte(mask).v)};
}
// Byte i & 15 of the 16 in the same half of `table`; indices 0..15.
OCTAVO_INLINE B lookup(B table, B index) {
    return {_mm256_shuffle_epi8(table.v, index.v)};
}

// Eight numbers of n bits inside `bits`, which begin at the bits that 2^(32 - n) / factors[i]
// names.
OCTAVO_INLINE F8 floats_of_fields(uint32_t bits, const uint32_t (&factors)[8], int n) {
    const __m256i up =
        _mm256_mullo_epi32(_mm256_set1_epi32(static_cast<int>(bits)), load_bytes(factors).v);
    return {_mm256_cvtepi32_ps(_mm256_srli_epi32(up, 32 - n))};
}
// The upper 4 bits of eight numbers of 4 bytes.
OCTAVO_INLINE F8 floats_of_tops(B words) {
    return {_mm256_cvtepi32_ps(_mm256_srli_epi32(words.v, 28))};
}
// The second, fourth .. of 16 numbers of 4 bytes.
OCTAVO_INLINE B load_odd_words(const uint8_t* p) {
    const __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(load_bytes(p).v),
                                         _mm256_castsi256_ps(load_bytes(p + 32).v), 0xDD);
    return {_mm256_permute4x64_epi64(_mm256_castps_si256(odd), 0xD8)};
}
// Bits `shift` .. `shift` + n - 1 of eight numbers of 2 bytes.
OCTAVO_INLINE F8 floats_of_short_fields(const void* p, int shift, int n) {
    const __m128i shorts = _mm_loadu_si128(static_cast<const __m128i*>(p));
    const __m256i up = _mm256_slli_epi32(_mm256_cvtepu16_epi32(shorts), 32 - n - shift);
    return {_mm256_cvtepi32_ps(_mm256_srli_epi32(up, 32 - n))};
}

struct I {
    __m256i v;
};

OCTAVO_INLINE I zero_integers() {
    return {_mm256_setzero_si256()};
}
OCTAVO_INLINE I add(I a, I b) {
    return {_mm256_add_epi32(a.v, b.v)};
}
OCTAVO_INLINE I sub(I a, I b) {
    return {_mm256_sub_epi32(a.v, b.v)};
}
OCTAVO_INLINE F8 to_float(I a) {
    return {_mm256_cvtepi32_ps(a.v)};
}
OCTAVO_INLINE I bits_and(I a, uint32_t mask) {
    return {_mm256_and_si256(a.v, _mm256_set1_epi32(static_cast<int>(mask)))};
}
OCTAVO_INLINE I bits_or(I a, I b) {
    return {_mm256_or_si256(a.v, b.v)};
}
OCTAVO_INLINE I shifted_down(I a, int n) {
    return {_mm256_srli_epi32(a.v, n)};
}
OCTAVO_INLINE I bits_xor(I a, I b) {
    return {_mm256_xor_si256(a.v, b.v)};
}
OCTAVO_INLINE I shifted_up(I a, int n) {
    return {_mm256_slli_epi32(a.v, n)};
}
OCTAVO_INLINE B bytes_of(I a) {
    return {a.v};
}
OCTAVO_INLINE I load_integers(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
// Byte `i` of each lane, 0..3; as an unsigned or a signed number.
OCTAVO_INLINE F8 floats_of_bytes(I a, int i) {
    return to_float(i == 3 ? shifted_down(a, 24) : bits_and(shifted_down(a, 8 * i), 255));
}
OCTAVO_INLINE F8 floats_of_signed_bytes(I a, int i) {
    return to_float({_mm256_srai_epi32(_mm256_slli_epi32(a.v, 24 - 8 * i), 24)});
}
// The half-precision number in the lower or upper half of each lane.
OCTAVO_INLINE F8 floats_of_low_halves(I a) {
    const __m256i low = bits_and(a, 0xFFFF).v;
    return {_mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)))};
}
OCTAVO_INLINE F8 floats_of_high_halves(I a) {
    return floats_of_low_halves(shifted_down(a, 16));
}
// The words at p[0] + at, p[1] + at ...
OCTAVO_INLINE I load_word_of_8(const uint8_t* const p[8], int at) {
    int32_t w[8];
    for (int i = 0; i < 8; ++i) std::memcpy(w + i, p[i] + at, 4);
    return {_mm256_setr_epi32(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])};
}
// 16 bytes at p[0] + at, p[1] + at ...: word i of p[r] is lane r of out[i].
OCTAVO_INLINE void load_words(const uint8_t* const p[8], int at, I out[4]) {
    __m256i a[4];
    for (int i = 0; i < 4; ++i) a[i] = load_bytes(p[i] + at, p[i + 4] + at).v;
    const __m256i ab = _mm256_unpacklo_epi32(a[0], a[1]), AB = _mm256_unpackhi_epi32(a[0], a[1]);
    const __m256i cd = _mm256_unpacklo_epi32(a[2], a[3]), CD = _mm256_unpackhi_epi32(a[2], a[3]);
    out[0] = {_mm256_unpacklo_epi64(ab, cd)};
    out[1] = {_mm256_unpackhi_epi64(ab, cd)};
    out[2] = {_mm256_unpacklo_epi64(AB, CD)};
    out[3] = {_mm256_unpackhi_epi64(AB, CD)};
}
OCTAVO_INLINE int sum(I a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}
// Sums of four lanes: the lower halves of a, b, c, d, then their upper halves.
OCTAVO_INLINE I half_sums(I a, I b, I c, I d) {
    return {_mm256_hadd_epi32(_mm256_hadd_epi32(a.v, b.v), _mm256_hadd_epi32(c.v, d.v))};
}
// 32 numbers rounded to nearest even, within -128..127.
OCTAVO_INLINE B to_bytes(F8 a, F8 b, F8 c, F8 d) {
    const __m256i ab = _mm256_packs_epi32(_mm256_cvtps_epi32(a.v), _mm256_cvtps_epi32(b.v));
    const __m256i cd = _mm256_packs_epi32(_mm256_cvtps_epi32(c.v), _mm256_cvtps_epi32(d.v));
    return {_mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd),
                                        _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))};
}
OCTAVO_INLINE void store(int32_t* p, I a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}

// Whether dot_unsigned takes weights up to 255, which makes it the quickest for all weights.
#if defined(OCTAVO_LEVEL_avx2)
constexpr bool kFullUnsigned = false;
#else
constexpr bool kFullUnsigned = true;
#endif

#if defined(OCTAVO_LEVEL_avx2)
// Sums of two products, 16 bits each.
struct PairSums {
    __m256i v;
};
OCTAVO_INLINE PairSums add(PairSums a, PairSums b) {
    return {_mm256_add_epi16(a.v, b.v)};
}
// Weights are 0..127.
OCTAVO_INLINE PairSums pair_sums(B weights, B x) {
    return {_mm256_maddubs_epi16(weights.v, x.v)};
}
// Weights are int8, x is -127..127.
OCTAVO_INLINE PairSums pair_sums_signed(B weights, B x) {
    return pair_sums({_mm256_abs_epi8(weights.v)}, {_mm256_sign_epi8(x.v, weights.v)});
}
// Neighbours added: sums of four products.
OCTAVO_INLINE I widened(PairSums a) {
    return {_mm256_madd_epi16(a.v, _mm256_set1_epi16(1))};
}
#endif

// acc[lane] += the sum of four products; weights are 0..127, or 0..255 if kFullUnsigned.
OCTAVO_INLINE I dot_unsigned(I acc, B weights, B x) {
#if defined(OCTAVO_LEVEL_avx512)
    return {_mm256_dpbusd_epi32(acc.v, weights.v, x.v)};
#elif defined(OCTAVO_LEVEL_avx_vnni)
    return {_mm256_dpbusd_avx_epi32(acc.v, weights.v, x.v)};
#else
    return add(acc, widened(pair_sums(weights, x)));
#endif
}

}  // namespace octavo::OCTAVO_LEVEL

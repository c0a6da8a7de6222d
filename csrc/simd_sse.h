// The words of simd.h for x86-64-v2 (SSE4.2): no fused multiply-add, no half-precision
// instructions, and two registers where other levels have one of 256 bits.
#pragma once

#include <nmmintrin.h>

#include "half.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kLanes = 4;

inline float half_to_float(uint16_t half) {
    return half_to_float_plain(half);
}
inline uint16_t float_to_half(float x) {
    return float_to_half_plain(x);
}

struct F {
    __m128 v;
};

OCTAVO_INLINE F load(const float* p) {
    return {_mm_loadu_ps(p)};
}
OCTAVO_INLINE void store(float* p, F a) {
    _mm_storeu_ps(p, a.v);
}
OCTAVO_INLINE F splat(float x) {
    return {_mm_set1_ps(x)};
}
OCTAVO_INLINE F zero() {
    return {_mm_setzero_ps()};
}
OCTAVO_INLINE F add(F a, F b) {
    return {_mm_add_ps(a.v, b.v)};
}
OCTAVO_INLINE F sub(F a, F b) {
    return {_mm_sub_ps(a.v, b.v)};
}
OCTAVO_INLINE F mul(F a, F b) {
    return {_mm_mul_ps(a.v, b.v)};
}
OCTAVO_INLINE F div(F a, F b) {
    return {_mm_div_ps(a.v, b.v)};
}
OCTAVO_INLINE F fma(F a, F b, F c) {
    return {_mm_add_ps(_mm_mul_ps(a.v, b.v), c.v)};
}
OCTAVO_INLINE F max(F a, F b) {
    return {_mm_max_ps(a.v, b.v)};
}
OCTAVO_INLINE F min(F a, F b) {
    return {_mm_min_ps(a.v, b.v)};
}
OCTAVO_INLINE F abs(F a) {
    return {_mm_andnot_ps(_mm_set1_ps(-0.0f), a.v)};
}
OCTAVO_INLINE F sqrt(F a) {
    return {_mm_sqrt_ps(a.v)};
}
OCTAVO_INLINE F round_even(F a) {
    return {_mm_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
OCTAVO_INLINE float sum(F a) {
    const __m128 s = _mm_add_ps(a.v, _mm_movehl_ps(a.v, a.v));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
OCTAVO_INLINE float largest(F a) {
    const __m128 m = _mm_max_ps(a.v, _mm_movehl_ps(a.v, a.v));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
// n whole, -150..128; results below 2^-125 become 0.
OCTAVO_INLINE F times_power_of_two(F a, F n) {
    // 2^(n - 1), which exists for n = 128, and then twice that.
    const __m128i exponent = _mm_add_epi32(_mm_cvtps_epi32(n.v), _mm_set1_epi32(126));
    const __m128i field = _mm_max_epi32(exponent, _mm_setzero_si128());
    const __m128 scaled = _mm_mul_ps(a.v, _mm_castsi128_ps(_mm_slli_epi32(field, 23)));
    return {_mm_add_ps(scaled, scaled)};
}

OCTAVO_INLINE F load_first(const float* p, int n) {
    float lanes[kLanes] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load(lanes);
}
OCTAVO_INLINE void store_first(float* p, F a, int n) {
    float lanes[kLanes];
    store(lanes, a);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

OCTAVO_INLINE F load_half(const uint16_t* p) {
    // half_to_float_plain in four lanes.
    const __m128i half = _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i magnitude = _mm_and_si128(half, _mm_set1_epi32(0x7FFF));
    const __m128i sign = _mm_slli_epi32(_mm_xor_si128(half, magnitude), 16);
    const __m128 finite =
        _mm_mul_ps(_mm_castsi128_ps(_mm_slli_epi32(magnitude, 13)), _mm_set1_ps(0x1p112f));
    const __m128i special = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7BFF));
    const __m128i exponent = _mm_and_si128(special, _mm_set1_epi32(0x7F800000));
    return {_mm_castsi128_ps(_mm_or_si128(_mm_or_si128(_mm_castps_si128(finite), sign), exponent))};
}
OCTAVO_INLINE void store_half(uint16_t* p, F a) {
    float lanes[kLanes];
    store(lanes, a);
    for (int i = 0; i < kLanes; ++i) p[i] = float_to_half(lanes[i]);
}
OCTAVO_INLINE F load_bf16(const uint16_t* p) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return {_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(half), 16))};
}
OCTAVO_INLINE F load_int8(const int8_t* p) {
    int32_t bytes;
    std::memcpy(&bytes, p, 4);
    return {_mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(bytes)))};
}
// Whole numbers within -128..127; fractions round to nearest even.
OCTAVO_INLINE void store_int8(int8_t* p, F a) {
    const __m128i words = _mm_packs_epi32(_mm_cvtps_epi32(a.v), _mm_setzero_si128());
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(words, words));
    std::memcpy(p, &bytes, 4);
}

struct F8 {
    F low, high;
};

OCTAVO_INLINE F8 load8(const float* p) {
    return {load(p), load(p + 4)};
}
OCTAVO_INLINE void store(float* p, F8 a) {
    store(p, a.low);
    store(p + 4, a.high);
}
OCTAVO_INLINE F8 splat8(float x) {
    return {splat(x), splat(x)};
}
OCTAVO_INLINE F8 zero8() {
    return {zero(), zero()};
}
OCTAVO_INLINE F8 add(F8 a, F8 b) {
    return {add(a.low, b.low), add(a.high, b.high)};
}
OCTAVO_INLINE F8 sub(F8 a, F8 b) {
    return {sub(a.low, b.low), sub(a.high, b.high)};
}
OCTAVO_INLINE F8 mul(F8 a, F8 b) {
    return {mul(a.low, b.low), mul(a.high, b.high)};
}
OCTAVO_INLINE F8 fma(F8 a, F8 b, F8 c) {
    return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
OCTAVO_INLINE F8 div(F8 a, F8 b) {
    return {div(a.low, b.low), div(a.high, b.high)};
}
OCTAVO_INLINE F8 max(F8 a, F8 b) {
    return {max(a.low, b.low), max(a.high, b.high)};
}
OCTAVO_INLINE F8 abs(F8 a) {
    return {abs(a.low), abs(a.high)};
}
OCTAVO_INLINE float sum(F8 a) {
    return sum(add(a.low, a.high));
}
// Lane i is the largest of a[i].
OCTAVO_INLINE F8 largest_of_each(const F8 (&a)[8]) {
    float lanes[8];
    for (int i = 0; i < 8; ++i) lanes[i] = largest(max(a[i].low, a[i].high));
    return load8(lanes);
}
// p[0] twice, p[1] twice, p[2] twice, p[3] twice.
OCTAVO_INLINE F8 load_4_twice(const float* p) {
    const F four = load(p);
    return {{_mm_unpacklo_ps(four.v, four.v)}, {_mm_unpackhi_ps(four.v, four.v)}};
}
// p[0] in the lower four lanes, p[1] in the upper four.
OCTAVO_INLINE F8 splat_pair(const float* p) {
    return {splat(p[0]), splat(p[1])};
}
OCTAVO_INLINE F8 load8_int8(const int8_t* p) {
    return {load_int8(p), load_int8(p + 4)};
}
OCTAVO_INLINE F load_uint8(const uint8_t* p) {
    int32_t bytes;
    std::memcpy(&bytes, p, 4);
    return {_mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)))};
}
OCTAVO_INLINE F8 load8_uint8(const uint8_t* p) {
    return {load_uint8(p), load_uint8(p + 4)};
}

// The eight bytes of `bytes`, lowest first.
OCTAVO_INLINE F8 floats_of_bytes(uint64_t bytes) {
    uint8_t lanes[8];
    std::memcpy(lanes, &bytes, 8);
    return load8_uint8(lanes);
}
OCTAVO_INLINE F8 floats_of_signed_bytes(uint64_t bytes) {
    int8_t lanes[8];
    std::memcpy(lanes, &bytes, 8);
    return load8_int8(lanes);
}
// table[p[0]], table[p[stride]] ...
OCTAVO_INLINE F8 take_8(const float* table, const uint8_t* p, int stride) {
    float lanes[8];
    for (int i = 0; i < 8; ++i) lanes[i] = table[p[i * stride]];
    return load8(lanes);
}
// Half-precision numbers at p[0] + at, p[1] + at ...
OCTAVO_INLINE F8 load_8_halves(const uint8_t* const p[8], int at) {
    uint16_t halves[8];
    for (int i = 0; i < 8; ++i) std::memcpy(halves + i, p[i] + at, 2);
    return {load_half(halves), load_half(halves + 4)};
}

struct B {
    __m128i low, high;
};

// 16 bytes from each address, or the same 16 twice.
OCTAVO_INLINE B load_bytes(const void* low, const void* high) {
    return {_mm_loadu_si128(static_cast<const __m128i*>(low)),
            _mm_loadu_si128(static_cast<const __m128i*>(high))};
}
OCTAVO_INLINE B load_bytes(const void* p) {
    return load_bytes(p, static_cast<const uint8_t*>(p) + 16);
}
// Four numbers of 8 bytes.
OCTAVO_INLINE B join_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return {_mm_set_epi64x(static_cast<int64_t>(b), static_cast<int64_t>(a)),
            _mm_set_epi64x(static_cast<int64_t>(d), static_cast<int64_t>(c))};
}
// Numbers of 8 bytes at four addresses.
OCTAVO_INLINE __m128i load_two(const uint64_t* low, const uint64_t* high) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low));
    return _mm_castps_si128(
        _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(high)));
}
OCTAVO_INLINE B take_words(const uint64_t* a, const uint64_t* b, const uint64_t* c,
                           const uint64_t* d) {
    return {load_two(a, b), load_two(c, d)};
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
    return {join_four(a, b, c, d), join_four(e, f, g, h)};
}
OCTAVO_INLINE B load_16_twice(const void* p) {
    return load_bytes(p, p);
}
OCTAVO_INLINE void store(void* p, B a) {
    _mm_storeu_si128(static_cast<__m128i*>(p), a.low);
    _mm_storeu_si128(static_cast<__m128i*>(p) + 1, a.high);
}
OCTAVO_INLINE B splat_byte(uint8_t x) {
    const __m128i v = _mm_set1_epi8(static_cast<char>(x));
    return {v, v};
}
OCTAVO_INLINE B bits_and(B a, B b) {
    return {_mm_and_si128(a.low, b.low), _mm_and_si128(a.high, b.high)};
}
OCTAVO_INLINE B bits_or(B a, B b) {
    return {_mm_or_si128(a.low, b.low), _mm_or_si128(a.high, b.high)};
}
OCTAVO_INLINE B bits_xor(B a, B b) {
    return {_mm_xor_si128(a.low, b.low), _mm_xor_si128(a.high, b.high)};
}
OCTAVO_INLINE B add(B a, B b) {
    return {_mm_add_epi8(a.low, b.low), _mm_add_epi8(a.high, b.high)};
}
OCTAVO_INLINE B sub(B a, B b) {
    return {_mm_sub_epi8(a.low, b.low), _mm_sub_epi8(a.high, b.high)};
}
OCTAVO_INLINE B equal(B a, B b) {
    return {_mm_cmpeq_epi8(a.low, b.low), _mm_cmpeq_epi8(a.high, b.high)};
}
// Where a byte of `mask` is 0xFF: a; where it is 0: b.
OCTAVO_INLINE B choose(B mask, B a, B b) {
    return {_mm_blendv_epi8(b.low, a.low, mask.low), _mm_blendv_epi8(b.high, a.high, mask.high)};
}
// Each of the four bytes of `bytes` 8 times, the lowest first.
OCTAVO_INLINE __m128i spread_two_bytes(uint32_t bytes) {
    return _mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(bytes)),
                            _mm_set_epi64x(0x0101010101010101, 0));
}
OCTAVO_INLINE B spread_bytes(uint32_t bytes) {
    return {spread_two_bytes(bytes), spread_two_bytes(bytes >> 16)};
}
OCTAVO_INLINE __m128i mask_of_16_bits(uint32_t bits) {
    const __m128i bit = _mm_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    return _mm_cmpeq_epi8(_mm_and_si128(spread_two_bytes(bits), bit), bit);
}
// 0xFF where bit i is set, for byte i.
OCTAVO_INLINE B mask_of_bits(uint32_t bits) {
    return {mask_of_16_bits(bits), mask_of_16_bits(bits >> 16)};
}
// 0xFF where a >= bound.
OCTAVO_INLINE B at_least(B a, uint8_t bound) {
    const B bounds = splat_byte(bound);
    return equal({_mm_max_epu8(a.low, bounds.low), _mm_max_epu8(a.high, bounds.high)}, a);
}
// Each byte moved down by `shift` bits (up, if that is negative), as far as `mask` keeps it; the
// mask must drop the bits that come from a neighbour. |shift| < 8.
OCTAVO_INLINE B field(B a, int shift, uint8_t mask) {
    const B moved = shift < 0 ? B{_mm_slli_epi16(a.low, -shift), _mm_slli_epi16(a.high, -shift)}
                              : B{_mm_srli_epi16(a.low, shift), _mm_srli_epi16(a.high, shift)};
    return bits_and(moved, splat_byte(mask));
}
// 16 bytes as 32 numbers of 4 bits: all low halves, then all high halves.
OCTAVO_INLINE B load_nibbles(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return bits_and({bytes, _mm_srli_epi16(bytes, 4)}, splat_byte(15));
}
// The same, 8 bytes at a time.
OCTAVO_INLINE B load_nibbles_by_8(const void* p) {
    const B n = load_nibbles(p);
    return {_mm_unpacklo_epi64(n.low, n.high), _mm_unpackhi_epi64(n.low, n.high)};
}
// Byte i & 15 of the 16 in the same half of `table`; indices 0..15.
OCTAVO_INLINE B lookup(B table, B index) {
    return {_mm_shuffle_epi8(table.low, index.low), _mm_shuffle_epi8(table.high, index.high)};
}

// Eight numbers of n bits inside `bits`, which begin at the bits that 2^(32 - n) / factors[i]
// names.
OCTAVO_INLINE F8 floats_of_fields(uint32_t bits, const uint32_t (&factors)[8], int n) {
    const __m128i all = _mm_set1_epi32(static_cast<int>(bits));
    const B f = load_bytes(factors);
    return {{_mm_cvtepi32_ps(_mm_srli_epi32(_mm_mullo_epi32(all, f.low), 32 - n))},
            {_mm_cvtepi32_ps(_mm_srli_epi32(_mm_mullo_epi32(all, f.high), 32 - n))}};
}
// The upper 4 bits of eight numbers of 4 bytes.
OCTAVO_INLINE F8 floats_of_tops(B words) {
    return {{_mm_cvtepi32_ps(_mm_srli_epi32(words.low, 28))},
            {_mm_cvtepi32_ps(_mm_srli_epi32(words.high, 28))}};
}
// The second, fourth .. of 16 numbers of 4 bytes.
OCTAVO_INLINE __m128i odd_words(B words) {
    return _mm_castps_si128(
        _mm_shuffle_ps(_mm_castsi128_ps(words.low), _mm_castsi128_ps(words.high), 0xDD));
}
OCTAVO_INLINE B load_odd_words(const uint8_t* p) {
    return {odd_words(load_bytes(p)), odd_words(load_bytes(p + 32))};
}
// Bits `shift` .. `shift` + n - 1 of eight numbers of 2 bytes.
OCTAVO_INLINE F8 floats_of_short_fields(const void* p, int shift, int n) {
    const __m128i shorts = _mm_loadu_si128(static_cast<const __m128i*>(p));
    const __m128i field = _mm_srli_epi16(_mm_slli_epi16(shorts, 16 - n - shift), 16 - n);
    return {{_mm_cvtepi32_ps(_mm_cvtepu16_epi32(field))},
            {_mm_cvtepi32_ps(_mm_cvtepu16_epi32(_mm_srli_si128(field, 8)))}};
}

struct I {
    __m128i low, high;
};

OCTAVO_INLINE I zero_integers() {
    return {_mm_setzero_si128(), _mm_setzero_si128()};
}
OCTAVO_INLINE I add(I a, I b) {
    return {_mm_add_epi32(a.low, b.low), _mm_add_epi32(a.high, b.high)};
}
OCTAVO_INLINE I sub(I a, I b) {
    return {_mm_sub_epi32(a.low, b.low), _mm_sub_epi32(a.high, b.high)};
}
OCTAVO_INLINE F8 to_float(I a) {
    return {{_mm_cvtepi32_ps(a.low)}, {_mm_cvtepi32_ps(a.high)}};
}
OCTAVO_INLINE I load_integers(const int32_t* p) {
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 4))};
}
OCTAVO_INLINE I bits_and(I a, uint32_t mask) {
    const __m128i bits = _mm_set1_epi32(static_cast<int>(mask));
    return {_mm_and_si128(a.low, bits), _mm_and_si128(a.high, bits)};
}
OCTAVO_INLINE I bits_or(I a, I b) {
    return {_mm_or_si128(a.low, b.low), _mm_or_si128(a.high, b.high)};
}
OCTAVO_INLINE I shifted_down(I a, int n) {
    return {_mm_srli_epi32(a.low, n), _mm_srli_epi32(a.high, n)};
}
// Byte `i` of each lane, 0..3; as an unsigned or a signed number.
OCTAVO_INLINE F8 floats_of_bytes(I a, int i) {
    return to_float(bits_and(shifted_down(a, 8 * i), 255));
}
OCTAVO_INLINE F8 floats_of_signed_bytes(I a, int i) {
    return to_float({_mm_srai_epi32(_mm_slli_epi32(a.low, 24 - 8 * i), 24),
                     _mm_srai_epi32(_mm_slli_epi32(a.high, 24 - 8 * i), 24)});
}
OCTAVO_INLINE int sum(I a) {
    __m128i s = _mm_add_epi32(a.low, a.high);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}
// Sums of four lanes: the lower halves of a, b, c, d, then their upper halves.
OCTAVO_INLINE I half_sums(I a, I b, I c, I d) {
    return {_mm_hadd_epi32(_mm_hadd_epi32(a.low, b.low), _mm_hadd_epi32(c.low, d.low)),
            _mm_hadd_epi32(_mm_hadd_epi32(a.high, b.high), _mm_hadd_epi32(c.high, d.high))};
}
OCTAVO_INLINE __m128i to_bytes(F a, F b, F c, F d) {
    return _mm_packs_epi16(_mm_packs_epi32(_mm_cvtps_epi32(a.v), _mm_cvtps_epi32(b.v)),
                           _mm_packs_epi32(_mm_cvtps_epi32(c.v), _mm_cvtps_epi32(d.v)));
}
// 32 numbers rounded to nearest even, within -128..127.
OCTAVO_INLINE B to_bytes(F8 a, F8 b, F8 c, F8 d) {
    return {to_bytes(a.low, a.high, b.low, b.high), to_bytes(c.low, c.high, d.low, d.high)};
}
OCTAVO_INLINE void store(int32_t* p, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), a.low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p) + 1, a.high);
}

// The half-precision number in the lower or upper half of each lane.
OCTAVO_INLINE F8 floats_of_low_halves(I a) {
    int32_t lanes[8];
    uint16_t halves[8];
    store(lanes, a);
    for (int i = 0; i < 8; ++i) halves[i] = static_cast<uint16_t>(lanes[i]);
    return {load_half(halves), load_half(halves + 4)};
}
OCTAVO_INLINE F8 floats_of_high_halves(I a) {
    return floats_of_low_halves(shifted_down(a, 16));
}
// The words at p[0] + at, p[1] + at ...
OCTAVO_INLINE I load_word_of_8(const uint8_t* const p[8], int at) {
    int32_t words[8];
    for (int i = 0; i < 8; ++i) std::memcpy(words + i, p[i] + at, 4);
    return load_integers(words);
}
// 16 bytes at p[0] + at, p[1] + at ...: word i of p[r] is lane r of out[i].
OCTAVO_INLINE void load_words(const uint8_t* const p[8], int at, I out[4]) {
    int32_t words[4][8];
    for (int r = 0; r < 8; ++r)
        for (int i = 0; i < 4; ++i) std::memcpy(&words[i][r], p[r] + at + 4 * i, 4);
    for (int i = 0; i < 4; ++i) out[i] = load_integers(words[i]);
}

// Whether dot_unsigned takes weights up to 255, which makes it the quickest for all weights.
constexpr bool kFullUnsigned = false;

// Sums of two products, 16 bits each.
struct PairSums {
    __m128i low, high;
};
OCTAVO_INLINE PairSums add(PairSums a, PairSums b) {
    return {_mm_add_epi16(a.low, b.low), _mm_add_epi16(a.high, b.high)};
}
// Weights are 0..127.
OCTAVO_INLINE PairSums pair_sums(B weights, B x) {
    return {_mm_maddubs_epi16(weights.low, x.low), _mm_maddubs_epi16(weights.high, x.high)};
}
// Weights are int8, x is -127..127.
OCTAVO_INLINE PairSums pair_sums_signed(B weights, B x) {
    return pair_sums({_mm_abs_epi8(weights.low), _mm_abs_epi8(weights.high)},
                     {_mm_sign_epi8(x.low, weights.low), _mm_sign_epi8(x.high, weights.high)});
}
// Neighbours added: sums of four products.
OCTAVO_INLINE I widened(PairSums a) {
    const __m128i ones = _mm_set1_epi16(1);
    return {_mm_madd_epi16(a.low, ones), _mm_madd_epi16(a.high, ones)};
}

// acc[lane] += the sum of four products; weights are 0..127, or 0..255 if kFullUnsigned.
OCTAVO_INLINE I dot_unsigned(I acc, B weights, B x) {
    return add(acc, widened(pair_sums(weights, x)));
}

}  // namespace octavo::OCTAVO_LEVEL

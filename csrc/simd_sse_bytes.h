// B and I of simd.h, bytes and whole numbers, in two registers of 128 bits each: x86-64-v2.
#pragma once

#include "simd_sse.h"

namespace octavo::OCTAVO_LEVEL {

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
// The same, in the type of the first argument.
OCTAVO_INLINE B splat_as(B, uint8_t x) {
    return splat_byte(x);
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
OCTAVO_INLINE I bits_xor(I a, I b) {
    return {_mm_xor_si128(a.low, b.low), _mm_xor_si128(a.high, b.high)};
}
OCTAVO_INLINE I shifted_up(I a, int n) {
    return {_mm_slli_epi32(a.low, n), _mm_slli_epi32(a.high, n)};
}
OCTAVO_INLINE B bytes_of(I a) {
    return {a.low, a.high};
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

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

}  // namespace octavo::OCTAVO_LEVEL

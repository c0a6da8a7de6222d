// The words of simd.h for AVX2 with FMA and F16C; AVX-VNNI differs in dot_unsigned only.
#pragma once

#include <immintrin.h>

#include "half.h"
#include "simd_ymm.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kLanes = 8;

using F = F8;

OCTAVO_INLINE F load(const float* p) {
    return load8(p);
}
OCTAVO_INLINE F splat(float x) {
    return splat8(x);
}
OCTAVO_INLINE F zero() {
    return zero8();
}
OCTAVO_INLINE F min(F a, F b) {
    return {_mm256_min_ps(a.v, b.v)};
}
OCTAVO_INLINE F sqrt(F a) {
    return {_mm256_sqrt_ps(a.v)};
}
OCTAVO_INLINE F round_even(F a) {
    return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
OCTAVO_INLINE float largest(F a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
// n whole, -150..128; results below 2^-125 become 0.
OCTAVO_INLINE F times_power_of_two(F a, F n) {
    // 2^(n - 1), which exists for n = 128, and then twice that.
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(126));
    const __m256i field = _mm256_max_epi32(exponent, _mm256_setzero_si256());
    const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(field, 23));
    const __m256 scaled = _mm256_mul_ps(a.v, power);
    return {_mm256_add_ps(scaled, scaled)};
}

OCTAVO_INLINE __m256i first_lanes(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}
OCTAVO_INLINE F load_first(const float* p, int n) {
    return {_mm256_maskload_ps(p, first_lanes(n))};
}
OCTAVO_INLINE void store_first(float* p, F a, int n) {
    _mm256_maskstore_ps(p, first_lanes(n), a.v);
}

OCTAVO_INLINE F load_half(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
OCTAVO_INLINE void store_half(uint16_t* p, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
OCTAVO_INLINE F load_bf16(const uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
OCTAVO_INLINE F load_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}
// Whole numbers within -128..127; fractions round to nearest even.
OCTAVO_INLINE void store_int8(int8_t* p, F a) {
    const __m256i whole = _mm256_cvtps_epi32(a.v);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

}  // namespace octavo::OCTAVO_LEVEL

// The words of simd.h for AVX-512 (F, BW, DQ, VL) with VNNI.
#pragma once

#include <immintrin.h>

#include "half.h"
#include "simd_ymm.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kLanes = 16;

struct F {
    __m512 v;
};

OCTAVO_INLINE F load(const float* p) {
    return {_mm512_loadu_ps(p)};
}
OCTAVO_INLINE void store(float* p, F a) {
    _mm512_storeu_ps(p, a.v);
}
OCTAVO_INLINE F splat(float x) {
    return {_mm512_set1_ps(x)};
}
OCTAVO_INLINE F zero() {
    return {_mm512_setzero_ps()};
}
OCTAVO_INLINE F add(F a, F b) {
    return {_mm512_add_ps(a.v, b.v)};
}
OCTAVO_INLINE F sub(F a, F b) {
    return {_mm512_sub_ps(a.v, b.v)};
}
OCTAVO_INLINE F mul(F a, F b) {
    return {_mm512_mul_ps(a.v, b.v)};
}
OCTAVO_INLINE F div(F a, F b) {
    return {_mm512_div_ps(a.v, b.v)};
}
OCTAVO_INLINE F fma(F a, F b, F c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
OCTAVO_INLINE F max(F a, F b) {
    return {_mm512_max_ps(a.v, b.v)};
}
OCTAVO_INLINE F min(F a, F b) {
    return {_mm512_min_ps(a.v, b.v)};
}
OCTAVO_INLINE F abs(F a) {
    return {_mm512_abs_ps(a.v)};
}
OCTAVO_INLINE F sqrt(F a) {
    return {_mm512_sqrt_ps(a.v)};
}
OCTAVO_INLINE F round_even(F a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
OCTAVO_INLINE float sum(F a) {
    return _mm512_reduce_add_ps(a.v);
}
OCTAVO_INLINE float largest(F a) {
    return _mm512_reduce_max_ps(a.v);
}
// n whole, -150..128; results below 2^-125 become 0, as subnormal numbers are slow.
OCTAVO_INLINE F times_power_of_two(F a, F n) {
    const __mmask16 kept = _mm512_cmp_ps_mask(n.v, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);
    return {_mm512_maskz_scalef_ps(kept, a.v, n.v)};
}

OCTAVO_INLINE __mmask16 first_lanes(int n) {
    return static_cast<__mmask16>((1u << n) - 1u);
}
OCTAVO_INLINE F load_first(const float* p, int n) {
    return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
OCTAVO_INLINE void store_first(float* p, F a, int n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}

OCTAVO_INLINE F load_half(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
OCTAVO_INLINE void store_half(uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
OCTAVO_INLINE F load_bf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
OCTAVO_INLINE F load_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
// Whole numbers within -128..127; fractions round to nearest even.
OCTAVO_INLINE void store_int8(int8_t* p, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

}  // namespace octavo::OCTAVO_LEVEL

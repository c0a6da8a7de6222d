// The words of simd.h for ARMv8.2 with dot product: two registers where other levels have one of
// 256 bits.
#pragma once

#include <arm_neon.h>

#include "half.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kLanes = 4;

inline float half_to_float(uint16_t half) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
inline uint16_t float_to_half(float x) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}

struct F {
    float32x4_t v;
};

OCTAVO_INLINE F load(const float* p) {
    return {vld1q_f32(p)};
}
OCTAVO_INLINE void store(float* p, F a) {
    vst1q_f32(p, a.v);
}
OCTAVO_INLINE F splat(float x) {
    return {vdupq_n_f32(x)};
}
OCTAVO_INLINE F zero() {
    return {vdupq_n_f32(0.0f)};
}
OCTAVO_INLINE F add(F a, F b) {
    return {vaddq_f32(a.v, b.v)};
}
OCTAVO_INLINE F sub(F a, F b) {
    return {vsubq_f32(a.v, b.v)};
}
OCTAVO_INLINE F mul(F a, F b) {
    return {vmulq_f32(a.v, b.v)};
}
OCTAVO_INLINE F div(F a, F b) {
    return {vdivq_f32(a.v, b.v)};
}
OCTAVO_INLINE F fma(F a, F b, F c) {
    return {vfmaq_f32(c.v, a.v, b.v)};
}
OCTAVO_INLINE F max(F a, F b) {
    return {vmaxq_f32(a.v, b.v)};
}
OCTAVO_INLINE F min(F a, F b) {
    return {vminq_f32(a.v, b.v)};
}
OCTAVO_INLINE F abs(F a) {
    return {vabsq_f32(a.v)};
}
OCTAVO_INLINE F sqrt(F a) {
    return {vsqrtq_f32(a.v)};
}
OCTAVO_INLINE F round_even(F a) {
    return {vrndnq_f32(a.v)};
}
OCTAVO_INLINE float sum(F a) {
    return vaddvq_f32(a.v);
}
OCTAVO_INLINE float largest(F a) {
    return vmaxvq_f32(a.v);
}
// n whole, -150..128; results below 2^-125 become 0.
OCTAVO_INLINE F times_power_of_two(F a, F n) {
    // 2^(n - 1), which exists for n = 128, and then twice that.
    const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n.v), vdupq_n_s32(126));
    const int32x4_t field = vmaxq_s32(exponent, vdupq_n_s32(0));
    const float32x4_t scaled = vmulq_f32(a.v, vreinterpretq_f32_s32(vshlq_n_s32(field, 23)));
    return {vaddq_f32(scaled, scaled)};
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
    return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))};
}
OCTAVO_INLINE void store_half(uint16_t* p, F a) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a.v)));
}
OCTAVO_INLINE F load_bf16(const uint16_t* p) {
    return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))};
}
OCTAVO_INLINE int8x8_t load_four(const void* p) {
    uint32_t bytes;
    std::memcpy(&bytes, p, 4);
    return vreinterpret_s8_u32(vdup_n_u32(bytes));
}
OCTAVO_INLINE F load_int8(const int8_t* p) {
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(load_four(p)))))};
}
// Whole numbers within -128..127; fractions round to nearest even.
OCTAVO_INLINE void store_int8(int8_t* p, F a) {
    const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(a.v));
    const int8x8_t bytes = vqmovn_s16(vcombine_s16(words, words));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
    std::memcpy(p, &four, 4);
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
    const int16x8_t words = vmovl_s8(vld1_s8(p));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)))},
            {vcvtq_f32_s32(vmovl_high_s16(words))}};
}
OCTAVO_INLINE F8 load8_uint8(const uint8_t* p) {
    const uint16x8_t words = vmovl_u8(vld1_u8(p));
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(words)))},
            {vcvtq_f32_u32(vmovl_high_u16(words))}};
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

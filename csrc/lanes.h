// The words of matmul: weight rows as vector lanes, 16 on AVX-512 and 8 elsewhere, and the size of
// the tile of results that is held in registers.
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

// Four int8 weights of each row, four values of one token.
struct WeightLanes {
    __m512i v;
};
struct TokenWord {
    __m512i v;
};
OCTAVO_INLINE WeightLanes load_weights(const int8_t* p) {
    return {_mm512_loadu_si512(p)};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    return {_mm512_set1_epi32(static_cast<int>(word))};
}
OCTAVO_INLINE IntLanes dot_lanes(IntLanes acc, WeightLanes w, TokenWord x) {
    return {_mm512_dpbusd_epi32(acc.v, x.v, w.v)};
}

#else

constexpr int kPanelRows = 8;
#if defined(OCTAVO_LEVEL_avx_vnni)
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
OCTAVO_INLINE WeightLanes load_weights(const int8_t* p) {
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

#if defined(OCTAVO_LEVEL_baseline)
OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 4))};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    const __m128i words = _mm_set1_epi32(static_cast<int>(word));
    return {words, words};
}
#elif defined(OCTAVO_LEVEL_neon)
OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {vld1q_s32(p), vld1q_s32(p + 4)};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    const uint8x16_t words = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return {words, words};
}
#else
OCTAVO_INLINE IntLanes load_lanes(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
OCTAVO_INLINE TokenWord splat_word(uint32_t word) {
    return {_mm256_set1_epi32(static_cast<int>(word))};
}
#endif

OCTAVO_INLINE IntLanes dot_lanes(IntLanes acc, WeightLanes w, TokenWord x) {
#if defined(OCTAVO_LEVEL_avx_vnni)
    return {_mm256_dpbusd_avx_epi32(acc.v, x.v, w.v)};
#else
    return dot_signed(acc, w, x);
#endif
}

#endif

// Where the dot instruction multiplies unsigned by signed bytes, the tokens' values become
// unsigned by this flip, which adds 128; a panel's `start` takes 128 * (sum of weights) off again.
#if defined(OCTAVO_LEVEL_avx512) || defined(OCTAVO_LEVEL_avx_vnni)
constexpr uint8_t kFlip = 0x80;
#else
constexpr uint8_t kFlip = 0;
#endif

}  // namespace octavo::OCTAVO_LEVEL

// B and I of simd.h, bytes and whole numbers, in two registers of 128 bits each: NEON.
#pragma once

#include "simd_neon.h"

namespace octavo::OCTAVO_LEVEL {

struct B {
    uint8x16_t low, high;
};

// 16 bytes from each address, or the same 16 twice.
OCTAVO_INLINE B load_bytes(const void* low, const void* high) {
    return {vld1q_u8(static_cast<const uint8_t*>(low)),
            vld1q_u8(static_cast<const uint8_t*>(high))};
}
OCTAVO_INLINE B load_bytes(const void* p) {
    return load_bytes(p, static_cast<const uint8_t*>(p) + 16);
}
// Four numbers of 8 bytes.
OCTAVO_INLINE B join_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return {vcombine_u8(vcreate_u8(a), vcreate_u8(b)), vcombine_u8(vcreate_u8(c), vcreate_u8(d))};
}
// Numbers of 8 bytes at four addresses.
OCTAVO_INLINE B take_words(const uint64_t* a, const uint64_t* b, const uint64_t* c,
                           const uint64_t* d) {
    return {vreinterpretq_u8_u64(vcombine_u64(vld1_u64(a), vld1_u64(b))),
            vreinterpretq_u8_u64(vcombine_u64(vld1_u64(c), vld1_u64(d)))};
}
// Eight numbers of 4 bytes.
OCTAVO_INLINE B join_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f,
                           uint32_t g, uint32_t h) {
    uint32x4_t low = vdupq_n_u32(a), high = vdupq_n_u32(e);
    low = vsetq_lane_u32(d, vsetq_lane_u32(c, vsetq_lane_u32(b, low, 1), 2), 3);
    high = vsetq_lane_u32(h, vsetq_lane_u32(g, vsetq_lane_u32(f, high, 1), 2), 3);
    return {vreinterpretq_u8_u32(low), vreinterpretq_u8_u32(high)};
}
OCTAVO_INLINE B load_16_twice(const void* p) {
    return load_bytes(p, p);
}
OCTAVO_INLINE void store(void* p, B a) {
    vst1q_u8(static_cast<uint8_t*>(p), a.low);
    vst1q_u8(static_cast<uint8_t*>(p) + 16, a.high);
}
OCTAVO_INLINE B splat_byte(uint8_t x) {
    return {vdupq_n_u8(x), vdupq_n_u8(x)};
}
// The same, in the type of the first argument.
OCTAVO_INLINE B splat_as(B, uint8_t x) {
    return splat_byte(x);
}
OCTAVO_INLINE B bits_and(B a, B b) {
    return {vandq_u8(a.low, b.low), vandq_u8(a.high, b.high)};
}
OCTAVO_INLINE B bits_or(B a, B b) {
    return {vorrq_u8(a.low, b.low), vorrq_u8(a.high, b.high)};
}
OCTAVO_INLINE B bits_xor(B a, B b) {
    return {veorq_u8(a.low, b.low), veorq_u8(a.high, b.high)};
}
OCTAVO_INLINE B add(B a, B b) {
    return {vaddq_u8(a.low, b.low), vaddq_u8(a.high, b.high)};
}
OCTAVO_INLINE B sub(B a, B b) {
    return {vsubq_u8(a.low, b.low), vsubq_u8(a.high, b.high)};
}
OCTAVO_INLINE B equal(B a, B b) {
    return {vceqq_u8(a.low, b.low), vceqq_u8(a.high, b.high)};
}
// Where a byte of `mask` is 0xFF: a; where it is 0: b.
OCTAVO_INLINE B choose(B mask, B a, B b) {
    return {vbslq_u8(mask.low, a.low, b.low), vbslq_u8(mask.high, a.high, b.high)};
}
// Each of the four bytes of `bytes` 8 times, the lowest first.
OCTAVO_INLINE uint8x16_t spread_two_bytes(uint32_t bytes) {
    return vcombine_u8(vdup_n_u8(static_cast<uint8_t>(bytes)),
                       vdup_n_u8(static_cast<uint8_t>(bytes >> 8)));
}
OCTAVO_INLINE B spread_bytes(uint32_t bytes) {
    return {spread_two_bytes(bytes), spread_two_bytes(bytes >> 16)};
}
OCTAVO_INLINE uint8x16_t mask_of_16_bits(uint32_t bits) {
    const uint8x8_t bit = vcreate_u8(0x8040201008040201u);
    return vtstq_u8(spread_two_bytes(bits), vcombine_u8(bit, bit));
}
// 0xFF where bit i is set, for byte i.
OCTAVO_INLINE B mask_of_bits(uint32_t bits) {
    return {mask_of_16_bits(bits), mask_of_16_bits(bits >> 16)};
}
// 0xFF where a >= bound.
OCTAVO_INLINE B at_least(B a, uint8_t bound) {
    const uint8x16_t bounds = vdupq_n_u8(bound);
    return {vcgeq_u8(a.low, bounds), vcgeq_u8(a.high, bounds)};
}
// Each byte moved down by `shift` bits (up, if that is negative), as far as `mask` keeps it; the
// mask must drop the bits that come from a neighbour. |shift| < 8.
OCTAVO_INLINE B field(B a, int shift, uint8_t mask) {
    const int8x16_t up = vdupq_n_s8(static_cast<int8_t>(-shift));
    return bits_and({vshlq_u8(a.low, up), vshlq_u8(a.high, up)}, splat_byte(mask));
}
// 16 bytes as 32 numbers of 4 bits: all low halves, then all high halves.
OCTAVO_INLINE B load_nibbles(const void* p) {
    const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(p));
    return {vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4)};
}
// The same, 8 bytes at a time.
OCTAVO_INLINE B load_nibbles_by_8(const void* p) {
    const B n = load_nibbles(p);
    return {vcombine_u8(vget_low_u8(n.low), vget_low_u8(n.high)),
            vcombine_u8(vget_high_u8(n.low), vget_high_u8(n.high))};
}
// Byte i & 15 of the 16 in the same half of `table`; indices 0..15.
OCTAVO_INLINE B lookup(B table, B index) {
    return {vqtbl1q_u8(table.low, index.low), vqtbl1q_u8(table.high, index.high)};
}

// Eight numbers of n bits inside `bits`, which begin at the bits that 2^(32 - n) / factors[i]
// names.
OCTAVO_INLINE F8 floats_of_fields(uint32_t bits, const uint32_t (&factors)[8], int n) {
    const int32x4_t down = vdupq_n_s32(n - 32);
    const uint32x4_t low = vmulq_n_u32(vld1q_u32(factors), bits);
    const uint32x4_t high = vmulq_n_u32(vld1q_u32(factors + 4), bits);
    return {{vcvtq_f32_u32(vshlq_u32(low, down))}, {vcvtq_f32_u32(vshlq_u32(high, down))}};
}
// The upper 4 bits of eight numbers of 4 bytes.
OCTAVO_INLINE F8 floats_of_tops(B words) {
    return {{vcvtq_f32_u32(vshrq_n_u32(vreinterpretq_u32_u8(words.low), 28))},
            {vcvtq_f32_u32(vshrq_n_u32(vreinterpretq_u32_u8(words.high), 28))}};
}
// The second, fourth .. of 16 numbers of 4 bytes.
OCTAVO_INLINE uint8x16_t odd_words(B words) {
    return vreinterpretq_u8_u32(
        vuzp2q_u32(vreinterpretq_u32_u8(words.low), vreinterpretq_u32_u8(words.high)));
}
OCTAVO_INLINE B load_odd_words(const uint8_t* p) {
    return {odd_words(load_bytes(p)), odd_words(load_bytes(p + 32))};
}
// Bits `shift` .. `shift` + n - 1 of eight numbers of 2 bytes.
OCTAVO_INLINE F8 floats_of_short_fields(const void* p, int shift, int n) {
    const uint16x8_t shorts = vreinterpretq_u16_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
    const uint16x8_t moved = vshlq_u16(shorts, vdupq_n_s16(static_cast<int16_t>(-shift)));
    const uint16x8_t field = vandq_u16(moved, vdupq_n_u16(static_cast<uint16_t>((1 << n) - 1)));
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(field)))},
            {vcvtq_f32_u32(vmovl_high_u16(field))}};
}

struct I {
    int32x4_t low, high;
};

OCTAVO_INLINE I zero_integers() {
    return {vdupq_n_s32(0), vdupq_n_s32(0)};
}
OCTAVO_INLINE I add(I a, I b) {
    return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)};
}
OCTAVO_INLINE I sub(I a, I b) {
    return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)};
}
OCTAVO_INLINE F8 to_float(I a) {
    return {{vcvtq_f32_s32(a.low)}, {vcvtq_f32_s32(a.high)}};
}
OCTAVO_INLINE int sum(I a) {
    return vaddvq_s32(vaddq_s32(a.low, a.high));
}
OCTAVO_INLINE I load_integers(const int32_t* p) {
    return {vld1q_s32(p), vld1q_s32(p + 4)};
}
OCTAVO_INLINE I bits_and(I a, uint32_t mask) {
    const int32x4_t bits = vdupq_n_s32(static_cast<int32_t>(mask));
    return {vandq_s32(a.low, bits), vandq_s32(a.high, bits)};
}
OCTAVO_INLINE I bits_or(I a, I b) {
    return {vorrq_s32(a.low, b.low), vorrq_s32(a.high, b.high)};
}
OCTAVO_INLINE int32x4_t shifted_down(int32x4_t a, int n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}
OCTAVO_INLINE I shifted_down(I a, int n) {
    return {shifted_down(a.low, n), shifted_down(a.high, n)};
}
OCTAVO_INLINE I bits_xor(I a, I b) {
    return {veorq_s32(a.low, b.low), veorq_s32(a.high, b.high)};
}
OCTAVO_INLINE I shifted_up(I a, int n) {
    return {vshlq_s32(a.low, vdupq_n_s32(n)), vshlq_s32(a.high, vdupq_n_s32(n))};
}
OCTAVO_INLINE B bytes_of(I a) {
    return {vreinterpretq_u8_s32(a.low), vreinterpretq_u8_s32(a.high)};
}
// Byte `i` of each lane, 0..3; as an unsigned or a signed number.
OCTAVO_INLINE F8 floats_of_bytes(I a, int i) {
    return to_float(bits_and(shifted_down(a, 8 * i), 255));
}
OCTAVO_INLINE int32x4_t signed_bytes(int32x4_t a, int i) {
    return vshrq_n_s32(vshlq_s32(a, vdupq_n_s32(24 - 8 * i)), 24);
}
OCTAVO_INLINE F8 floats_of_signed_bytes(I a, int i) {
    return to_float({signed_bytes(a.low, i), signed_bytes(a.high, i)});
}
// Sums of four lanes: the lower halves of a, b, c, d, then their upper halves.
OCTAVO_INLINE I half_sums(I a, I b, I c, I d) {
    return {vpaddq_s32(vpaddq_s32(a.low, b.low), vpaddq_s32(c.low, d.low)),
            vpaddq_s32(vpaddq_s32(a.high, b.high), vpaddq_s32(c.high, d.high))};
}
OCTAVO_INLINE int16x8_t to_words(F8 a) {
    return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a.low.v)), vqmovn_s32(vcvtnq_s32_f32(a.high.v)));
}
OCTAVO_INLINE uint8x16_t to_bytes(F8 a, F8 b) {
    return vreinterpretq_u8_s8(vcombine_s8(vqmovn_s16(to_words(a)), vqmovn_s16(to_words(b))));
}
// 32 numbers rounded to nearest even, within -128..127.
OCTAVO_INLINE B to_bytes(F8 a, F8 b, F8 c, F8 d) {
    return {to_bytes(a, b), to_bytes(c, d)};
}
OCTAVO_INLINE void store(int32_t* p, I a) {
    vst1q_s32(p, a.low);
    vst1q_s32(p + 4, a.high);
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

// acc[lane] += the sum of four products; weights are 0..127 or int8.
OCTAVO_INLINE I dot_unsigned(I acc, B weights, B x) {
    return {vdotq_s32(acc.low, vreinterpretq_s8_u8(weights.low), vreinterpretq_s8_u8(x.low)),
            vdotq_s32(acc.high, vreinterpretq_s8_u8(weights.high), vreinterpretq_s8_u8(x.high))};
}

}  // namespace octavo::OCTAVO_LEVEL

// Half precision and bfloat16 in plain integers, for levels without instructions for them and for
// single values. Included by each level's simd header only.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo::OCTAVO_LEVEL {

inline uint32_t float_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

inline float bits_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// Exact. The exponent is moved by a multiplication, which also puts subnormals right.
inline float half_to_float_plain(uint16_t half) {
    const uint32_t magnitude = half & 0x7FFFu;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    if (magnitude >= 0x7C00u) return bits_float(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
    const float scaled = bits_float(magnitude << 13) * 0x1p112f;
    return bits_float(sign | float_bits(scaled));
}

// Nearest, ties to even.
inline uint16_t float_to_half_plain(float x) {
    const uint32_t bits = float_bits(x);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return sign | 0x7E00u;
    if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and more round to infinity
    if (magnitude < 0x38800000u) {
        // Subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
        return sign | static_cast<uint16_t>(float_bits(bits_float(magnitude) + 0.5f) - 0x3F000000u);
    }
    const uint32_t odd = magnitude >> 13 & 1u;
    return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xFFFu + odd) >> 13);
}

inline float bf16_to_float(uint16_t x) {
    return bits_float(static_cast<uint32_t>(x) << 16);
}

}  // namespace octavo::OCTAVO_LEVEL

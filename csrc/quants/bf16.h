// bf16: the upper halves of single-precision floats.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct bf16 {
    static constexpr int kBlock = 1, kBytes = 2;
    OCTAVO_INLINE static F load(const uint8_t* p) {
        return load_bf16(reinterpret_cast<const uint16_t*>(p));
    }
    OCTAVO_INLINE static float one(const uint8_t* p) { return bf16_to_float(read<uint16_t>(p)); }
};

}  // namespace octavo::OCTAVO_LEVEL

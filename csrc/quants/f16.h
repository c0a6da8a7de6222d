// f16: half-precision floats.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct f16 {
    static constexpr int kBlock = 1, kBytes = 2;
    OCTAVO_INLINE static F load(const uint8_t* p) {
        return load_half(reinterpret_cast<const uint16_t*>(p));
    }
    OCTAVO_INLINE static float one(const uint8_t* p) { return load_half_at(p); }
};

}  // namespace octavo::OCTAVO_LEVEL

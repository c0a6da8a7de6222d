// f32: single-precision floats.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

struct f32 {
    static constexpr int kBlock = 1, kBytes = 4;
    OCTAVO_INLINE static F load(const uint8_t* p) {
        return OCTAVO_LEVEL::load(reinterpret_cast<const float*>(p));
    }
    OCTAVO_INLINE static float one(const uint8_t* p) { return read<float>(p); }
};

}  // namespace octavo::OCTAVO_LEVEL

// int8 with a half-precision scale for every 32 dims of a position.
//
// Key block, for each group of 32 dims (the last may be shorter): scales [64], then numbers
// [dims of the group][64]. Value block: scales [64][groups], then numbers [64][dim].
#pragma once

#include "attend.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL::kv_q8_0 {

struct Format {
    using Number = int8_t;
    static constexpr int kScaleDims = 32;
    static constexpr int kScaleBytes = kPageTokens * 2;
    static constexpr int kGroupBytes = kScaleBytes + kScaleDims * kPageTokens;

    static int n_groups(int dim) { return (dim + kScaleDims - 1) / kScaleDims; }
    static size_t block_bytes(int dim) {
        return static_cast<size_t>(n_groups(dim)) * kScaleBytes +
               static_cast<size_t>(dim) * kPageTokens;
    }

    static const int8_t* keys(const uint8_t* block, int i) {
        return reinterpret_cast<const int8_t*>(block) + i / kScaleDims * kGroupBytes + kScaleBytes +
               i % kScaleDims * kPageTokens;
    }
    static const uint16_t* key_scales(const uint8_t* block, int i) {
        return reinterpret_cast<const uint16_t*>(block + i / kScaleDims * kGroupBytes);
    }
    static const int8_t* values(const uint8_t* block, int dim) {
        return reinterpret_cast<const int8_t*>(block) + n_groups(dim) * kScaleBytes;
    }
    static const uint16_t* value_scales(const uint8_t* block) {
        return reinterpret_cast<const uint16_t*>(block);
    }

    // numbers = x / scale of up to 32 dims; returns the scale.
    static uint16_t quantise(const float* x, int n, int8_t* numbers) {
        alignas(64) float padded[kScaleDims] = {};
        std::memcpy(padded, x, n * sizeof(float));
        F most = zero();
        for (int i = 0; i < kScaleDims; i += kLanes) most = max(most, abs(load(padded + i)));
        const uint16_t scale = float_to_half(largest(most) / 127.0f);
        const float inverse = scale == 0 ? 0.0f : 1.0f / half_to_float(scale);
        for (int i = 0; i < kScaleDims; i += kLanes) {
            const F scaled = mul(load(padded + i), splat(inverse));
            store_int8(numbers + i, min(max(scaled, splat(-127.0f)), splat(127.0f)));
        }
        return scale;
    }

    static void write_keys(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                           int n_rows) {
        for (int i = 0; i < dim; i += kScaleDims, block += kGroupBytes) {
            const int width = dim - i < kScaleDims ? dim - i : kScaleDims;
            auto* scales = reinterpret_cast<uint16_t*>(block) + position;
            auto* out = reinterpret_cast<int8_t*>(block) + kScaleBytes + position;
            int8_t numbers[kPageTokens][kScaleDims];
            for (int row = 0; row < n_rows; ++row)
                scales[row] = quantise(x + row * stride + i, width, numbers[row]);
            for (int lane = 0; lane < width; ++lane)
                for (int row = 0; row < n_rows; ++row)
                    out[lane * kPageTokens + row] = numbers[row][lane];
        }
    }

    static void write_values(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                             int n_rows) {
        auto* scales = reinterpret_cast<uint16_t*>(block) + position * n_groups(dim);
        auto* out = reinterpret_cast<int8_t*>(block) + n_groups(dim) * kScaleBytes + position * dim;
        for (int row = 0; row < n_rows; ++row, out += dim) {
            for (int i = 0; i < dim; i += kScaleDims) {
                const int width = dim - i < kScaleDims ? dim - i : kScaleDims;
                int8_t numbers[kScaleDims];
                *scales++ = quantise(x + row * stride + i, width, numbers);
                std::memcpy(out + i, numbers, width);
            }
        }
    }
};

}  // namespace octavo::OCTAVO_LEVEL::kv_q8_0

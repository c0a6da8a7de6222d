// The page layout of the formats without scales: keys transposed (dim, 64), values (64, dim).
#pragma once

#include "attend.h"
#include "row_tiles.h"

namespace octavo::OCTAVO_LEVEL {

OCTAVO_INLINE void narrow(float* p, F a) {
    store(p, a);
}
OCTAVO_INLINE void narrow(uint16_t* p, F a) {
    store_half(p, a);
}

template <class Stored>
struct PlainPages {
    using Number = Stored;
    static constexpr int kScaleDims = 0;

    static size_t block_bytes(int dim) {
        return sizeof(Number) * kPageTokens * static_cast<size_t>(dim);
    }
    static const Number* keys(const uint8_t* block, int i) {
        return reinterpret_cast<const Number*>(block) + i * kPageTokens;
    }
    static const uint16_t* key_scales(const uint8_t*, int) { return nullptr; }
    static const Number* values(const uint8_t* block, int) {
        return reinterpret_cast<const Number*>(block);
    }
    static const uint16_t* value_scales(const uint8_t*) { return nullptr; }

    static void write_keys(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                           int n_rows) {
        auto* out = reinterpret_cast<Number*>(block) + position;
        for (int i = 0; i < dim; i += kLanes) {
            const int width = dim - i < kLanes ? dim - i : kLanes;
            Number numbers[kPageTokens][kLanes];
            for (int row = 0; row < n_rows; ++row)
                narrow(numbers[row], load_at_most(x + row * stride + i, width));
            for (int lane = 0; lane < width; ++lane)
                for (int row = 0; row < n_rows; ++row)
                    out[(i + lane) * kPageTokens + row] = numbers[row][lane];
        }
    }

    static void write_values(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                             int n_rows) {
        auto* out = reinterpret_cast<Number*>(block) + position * dim;
        for (int row = 0; row < n_rows; ++row, out += dim) {
            int i = 0;
            for (; i + kLanes <= dim; i += kLanes) narrow(out + i, load(x + row * stride + i));
            if (i < dim) {
                Number numbers[kLanes];
                narrow(numbers, load_first(x + row * stride + i, dim - i));
                std::memcpy(out + i, numbers, (dim - i) * sizeof(Number));
            }
        }
    }
};

}  // namespace octavo::OCTAVO_LEVEL

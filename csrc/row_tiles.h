// Small products of float rows with rectangles of numbers, held in registers: the inner loops of
// attention and of the delta rule. A result depends on its row only, not on the other rows.
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// Rows of a register tile; with kWide vectors across where rows are few, to hide latencies.
#if defined(OCTAVO_LEVEL_avx512) || defined(OCTAVO_LEVEL_neon)
constexpr int kMostRows = 12;
constexpr int kWideRows = 6;
#else
constexpr int kMostRows = 6;
constexpr int kWideRows = 2;
#endif
constexpr int kNarrow = 2;
constexpr int kWide = 4;

OCTAVO_INLINE F widen(const float* p) {
    return load(p);
}
OCTAVO_INLINE F widen(const uint16_t* p) {
    return load_half(p);
}
OCTAVO_INLINE F widen(const int8_t* p) {
    return load_int8(p);
}

OCTAVO_INLINE F load_at_most(const float* p, int n) {
    return n >= kLanes ? load(p) : load_first(p, n);
}
OCTAVO_INLINE void store_at_most(float* p, F a, int n) {
    if (n >= kLanes)
        store(p, a);
    else
        store_first(p, a, n);
}

// A rectangle of numbers: row i at data + i * step.
template <class Number>
struct Strip {
    const Number* data;
    int64_t step;
};

// out[row * width + i] = number i of the row, `width` whole vectors.
template <class Number>
void unpack(Strip<Number> in, int n_rows, int width, float* out) {
    for (int row = 0; row < n_rows; ++row)
        for (int i = 0; i < width; i += kLanes)
            store(out + row * width + i, widen(in.data + row * in.step + i));
}

// The same for a strip narrower than a vector; the lanes behind become zeros.
template <class Number>
void unpack_tail(Strip<Number> in, int n_rows, int width, float* out) {
    for (int row = 0; row < n_rows; ++row) {
        Number numbers[kLanes] = {};
        for (int i = 0; i < width; ++i) numbers[i] = in.data[row * in.step + i];
        store(out + row * kLanes, widen(numbers));
    }
}

// Calls body.run<n>() for the n in 1..kRows that is asked for.
template <int kRows, class Body>
OCTAVO_INLINE void with_rows(int n, const Body& body) {
    if constexpr (kRows > 1)
        if (n < kRows) return with_rows<kRows - 1>(n, body);
    body.template run<kRows>();
}

// Splits n rows into tiles of about equal height.
struct RowTiles {
    int n_rows;
    int n_tiles;
    explicit RowTiles(int n) : n_rows(n), n_tiles((n + kMostRows - 1) / kMostRows) {}
    int begin(int tile) const { return n_rows * tile / n_tiles; }
};

// sums += weights x values.
template <class Number, int kVectors>
struct MixTile {
    Strip<Number> values;  // (n_positions, dims)
    int n_positions;
    const float* weights;
    int64_t weights_stride;
    float* out;
    int64_t out_stride;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        F sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) sums[r][v] = load(out + r * out_stride + v * kLanes);
        const Number* value = values.data;
        for (int p = 0; p < n_positions; ++p, value += values.step) {
            F x[kVectors];
            for (int v = 0; v < kVectors; ++v) x[v] = widen(value + v * kLanes);
            for (int r = 0; r < kRows; ++r) {
                const F w = splat(weights[r * weights_stride + p]);
                for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(w, x[v], sums[r][v]);
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) store(out + r * out_stride + v * kLanes, sums[r][v]);
    }
};

// out (n_rows, width) += weights (n_rows, n) x values (n, width), for at most kMostRows rows and
// whole vectors of width.
template <class Number>
void add_products(Strip<Number> values, int n, const float* weights, int64_t weights_stride,
                  int n_rows, int width, float* out, int64_t out_stride) {
    int i = 0;
    for (; i + kNarrow * kLanes <= width; i += kNarrow * kLanes) {
        const MixTile<Number, kNarrow> tile{
            {values.data + i, values.step}, n, weights, weights_stride, out + i, out_stride};
        with_rows<kMostRows>(n_rows, tile);
    }
    if (i < width) {
        const MixTile<Number, 1> tile{
            {values.data + i, values.step}, n, weights, weights_stride, out + i, out_stride};
        with_rows<kMostRows>(n_rows, tile);
    }
}

}  // namespace octavo::OCTAVO_LEVEL

// The kernels of f32, f16 and bf16, made from their headers in quants/.
//
// Such a header has `struct <stem>` with kBlock = 1, kBytes, and two ways to read weights:
// load(p) gives kLanes of them, one(p) the first.
#pragma once

#include "kernels.h"
#include "panel.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// The last n < kLanes weights of a row, zeros behind them.
template <class Q>
OCTAVO_INLINE F load_last(const uint8_t* p, int n) {
    float lanes[kLanes] = {};
    for (int i = 0; i < n; ++i) lanes[i] = Q::one(p + i * Q::kBytes);
    return load(lanes);
}

template <class Q, int kRows, int kTokens>
inline void dot_float_tile(const uint8_t* w, size_t row_bytes, int n_columns, const float* x,
                           int64_t x_stride, float* y, int64_t y_stride) {
    F sums[kRows][kTokens][2];
    for (int r = 0; r < kRows; ++r)
        for (int t = 0; t < kTokens; ++t) sums[r][t][0] = sums[r][t][1] = zero();
    int column = 0;
    for (; column + 2 * kLanes <= n_columns; column += 2 * kLanes)
        for (int half = 0; half < 2; ++half) {
            const int at = column + half * kLanes;
            for (int r = 0; r < kRows; ++r) {
                const F weights = Q::load(w + r * row_bytes + static_cast<size_t>(at) * Q::kBytes);
                for (int t = 0; t < kTokens; ++t)
                    sums[r][t][half] = fma(weights, load(x + t * x_stride + at), sums[r][t][half]);
            }
        }
    for (; column < n_columns; column += kLanes) {
        const int n = n_columns - column < kLanes ? n_columns - column : kLanes;
        for (int r = 0; r < kRows; ++r) {
            const F weights =
                load_last<Q>(w + r * row_bytes + static_cast<size_t>(column) * Q::kBytes, n);
            for (int t = 0; t < kTokens; ++t)
                sums[r][t][0] =
                    fma(weights, load_first(x + t * x_stride + column, n), sums[r][t][0]);
        }
    }
    for (int r = 0; r < kRows; ++r)
        for (int t = 0; t < kTokens; ++t)
            y[t * y_stride + r] = sum(add(sums[r][t][0], sums[r][t][1]));
}

// FormatKernels::dot_floats.
template <class Q>
void dot_floats(const BlockRows& w, int row0, int row1, const float* x, int64_t x_stride, int t0,
                int t1, float* y, int64_t y_stride) {
    int row = row0;
    for (; row + 4 <= row1; row += 4) {
        const uint8_t* weights = w.data + row * w.row_bytes;
        int t = t0;
        for (; t + 2 <= t1; t += 2)
            dot_float_tile<Q, 4, 2>(weights, w.row_bytes, w.n_columns, x + t * x_stride, x_stride,
                                    y + t * y_stride + row, y_stride);
        if (t < t1)
            dot_float_tile<Q, 4, 1>(weights, w.row_bytes, w.n_columns, x + t * x_stride, x_stride,
                                    y + t * y_stride + row, y_stride);
    }
    for (; row < row1; ++row)
        for (int t = t0; t < t1; ++t)
            dot_float_tile<Q, 1, 1>(w.data + row * w.row_bytes, w.row_bytes, w.n_columns,
                                    x + t * x_stride, x_stride, y + t * y_stride + row, y_stride);
}

// FormatKernels::unpack.
template <class Q>
void unpack_floats(const uint8_t* row, int n_columns, float* out) {
    int column = 0;
    for (; column + kLanes <= n_columns; column += kLanes)
        store(out + column, Q::load(row + static_cast<size_t>(column) * Q::kBytes));
    for (; column < n_columns; ++column)
        out[column] = Q::one(row + static_cast<size_t>(column) * Q::kBytes);
}

// FormatKernels::pack_panel.
template <class Q>
void pack_floats(const BlockRows& w, int row0, int column0, int n_columns, void* panel) {
    pack_float_panel(unpack_floats<Q>, Q::kBytes, w, row0, column0, n_columns, panel);
}

}  // namespace octavo::OCTAVO_LEVEL

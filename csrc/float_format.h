// The kernels of f32, f16 and bf16, made from their headers in quants/.
//
// Such a header has `struct <stem>` with kBlock = 1, kBytes, and two ways to read weights:
// load(p) gives kLanes of them, one(p) the first.
//
// A sum runs over the columns in order, one by one, as in matmul.cpp.
#pragma once

#include "panel.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kFloatGroup = 16;  // columns that are turned over at once

// The last n < kLanes weights of a row, zeros behind them.
template <class Q>
OCTAVO_INLINE F load_last(const uint8_t* p, int n) {
    float lanes[kLanes] = {};
    for (int i = 0; i < n; ++i) lanes[i] = Q::one(p + i * Q::kBytes);
    return load(lanes);
}

// Columns `column` .. column + n - 1 of kPanelRows rows, n <= kFloatGroup: out[i] is column i of
// all rows.
template <class Q>
OCTAVO_INLINE void turn_floats(const uint8_t* const rows[kPanelRows], int column, int n,
                               float (*out)[kPanelRows]) {
    alignas(64) float in[kPanelRows][kFloatGroup];
    for (int r = 0; r < kPanelRows; ++r)
        for (int i = 0; i < kFloatGroup; i += kLanes) {
            const uint8_t* p = rows[r] + static_cast<size_t>(column + i) * Q::kBytes;
            store(in[r] + i, i + kLanes <= n ? Q::load(p) : load_last<Q>(p, n - i));
        }
    for (int i = 0; i < kFloatGroup; i += 8) {
        B part[kPanelRows];
        WeightLanes words[8];
        for (int r = 0; r < kPanelRows; ++r) part[r] = load_bytes(in[r] + i);
        turn_rows(part, words);
        for (int j = 0; j < 8; ++j) store(out[i + j], words[j]);
    }
}

// The rows of a panel from `row` on; those behind the last repeat it.
OCTAVO_INLINE void panel_rows(const BlockRows& w, int row, int row1,
                              const uint8_t* rows[kPanelRows]) {
    for (int r = 0; r < kPanelRows; ++r)
        rows[r] = w.data + (row + r < row1 ? row + r : row1 - 1) * w.row_bytes;
}

// kPanels * kPanelRows rows from `row` on, those that are below row1.
template <class Q, int kPanels, int kTokens>
inline void dot_float_tile(const BlockRows& w, int row, int row1, const float* x, int64_t x_stride,
                           float* y, int64_t y_stride) {
    const uint8_t* rows[kPanels][kPanelRows];
    FloatLanes sums[kPanels][kTokens];
    for (int p = 0; p < kPanels; ++p) {
        panel_rows(w, row + p * kPanelRows, row1, rows[p]);
        for (int t = 0; t < kTokens; ++t) sums[p][t] = splat_lanes(0.0f);
    }
    for (int column = 0; column < w.n_columns; column += kFloatGroup) {
        const int left = w.n_columns - column;
        const int n = left < kFloatGroup ? left : kFloatGroup;
        alignas(64) float turned[kPanels][kFloatGroup][kPanelRows];
        for (int p = 0; p < kPanels; ++p) turn_floats<Q>(rows[p], column, n, turned[p]);
        for (int i = 0; i < n; ++i)
            for (int t = 0; t < kTokens; ++t) {
                const FloatLanes token = splat_lanes(x[t * x_stride + column + i]);
                for (int p = 0; p < kPanels; ++p)
                    sums[p][t] = fma(load_lanes(turned[p][i]), token, sums[p][t]);
            }
    }
    for (int t = 0; t < kTokens; ++t)
        for (int p = 0; p < kPanels; ++p) {
            const int n = row1 - row - p * kPanelRows;
            if (n > 0)
                store_some(y + t * y_stride + row + p * kPanelRows, sums[p][t],
                           n < kPanelRows ? n : kPanelRows);
        }
}

// FormatKernels::dot_floats.
template <class Q>
void dot_floats(const BlockRows& w, int row0, int row1, const float* x, int64_t x_stride, int t0,
                int t1, float* y, int64_t y_stride) {
    // Two panels: the additions of one wait for each other.
    for (int row = row0; row < row1; row += 2 * kPanelRows) {
        int t = t0;
        for (; t + 4 <= t1; t += 4)
            dot_float_tile<Q, 2, 4>(w, row, row1, x + t * x_stride, x_stride, y + t * y_stride,
                                    y_stride);
        for (; t < t1; ++t)
            dot_float_tile<Q, 2, 1>(w, row, row1, x + t * x_stride, x_stride, y + t * y_stride,
                                    y_stride);
    }
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

// FormatKernels::pack_panel: the panel is [column][row].
template <class Q>
void pack_floats(const BlockRows& w, int row0, int column0, int n_columns, void* panel) {
    const uint8_t* rows[kPanelRows];
    panel_rows(w, row0 < w.n_rows ? row0 : w.n_rows - 1, w.n_rows, rows);
    auto* out = static_cast<float (*)[kPanelRows]>(panel);
    for (int column = 0; column < n_columns; column += kFloatGroup) {
        const int left = n_columns - column;
        turn_floats<Q>(rows, column0 + column, left < kFloatGroup ? left : kFloatGroup,
                       out + column);
    }
}

}  // namespace octavo::OCTAVO_LEVEL

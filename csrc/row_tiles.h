// Small products of float rows with rectangles of numbers, held in registers: the inner loops of
// attention and of the delta rule. A result depends on its row only, not on the other rows.
#pragma once

#include "ahead.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// Rows of a register tile of kNarrow vectors.
#if defined(OCTAVO_LEVEL_avx512) || defined(OCTAVO_LEVEL_neon)
constexpr int kMostRows = 12;
#else
constexpr int kMostRows = 6;
#endif
constexpr int kNarrow = 2;

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

    Strip from(int64_t i) const { return {data + i, step}; }
};

// Two ranges, each in two streams.
inline Ahead two_ranges(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
    const size_t a_half = (a_bytes / 2 + 63) / 64 * 64, b_half = (b_bytes / 2 + 63) / 64 * 64;
    const auto *p = static_cast<const char*>(a), *q = static_cast<const char*>(b);
    return {{p, p + a_half, q, q + b_half}, 0, a_half > b_half ? a_half : b_half};
}

// Asks for a line of each stream. Loops call it once every kStepBytes that they read themselves.
OCTAVO_INLINE void fetch(Ahead* ahead) {
    if (ahead->at >= ahead->n_due) return;
    for (const char* stream : ahead->streams) OCTAVO_PREFETCH(stream + ahead->at);
    ahead->at += 64;
}

// Rows of so many bytes between two calls of `fetch`.
constexpr int rows_between_fetches(size_t row_bytes) {
    return row_bytes >= Ahead::kStepBytes ? 1 : static_cast<int>(Ahead::kStepBytes / row_bytes);
}

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
    explicit RowTiles(int n, int most = kMostRows) : n_rows(n), n_tiles((n + most - 1) / most) {}
    int begin(int tile) const { return n_rows * tile / n_tiles; }
    int height(int tile) const { return begin(tile + 1) - begin(tile); }
    int holding(int row) const {
        int tile = row * n_tiles / n_rows;
        while (begin(tile + 1) <= row) ++tile;
        return tile;
    }
};

// sums += weights x values. Weights of a row lie together; rows are kStride apart.
template <class Number, int kVectors, int kStride>
struct MixTile {
    Strip<Number> values;  // (n, dims)
    Ahead* ahead;          // or nullptr
    int n;
    const float* weights;
    float* out;
    int64_t out_stride;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        constexpr int kFetchRows = rows_between_fetches(kVectors * kLanes * sizeof(Number));
        F sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) sums[r][v] = load(out + r * out_stride + v * kLanes);
        const Number* value = values.data;
        for (int i = 0; i < n; ++i, value += values.step) {
            if (ahead && i % kFetchRows == 0) fetch(ahead);
            F x[kVectors];
            for (int v = 0; v < kVectors; ++v) x[v] = widen(value + v * kLanes);
            for (int r = 0; r < kRows; ++r) {
                const F w = splat(weights[r * kStride + i]);
                for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(w, x[v], sums[r][v]);
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) store(out + r * out_stride + v * kLanes, sums[r][v]);
    }
};

// out (n_rows, width) += weights (n_rows, n) x values (n, width), for at most kMostRows rows and
// whole vectors of width.
template <int kStride, class Number>
void add_products(Strip<Number> values, Ahead* ahead, int n, const float* weights, int n_rows,
                  int width, float* out, int64_t out_stride) {
    int i = 0;
    for (; i + kNarrow * kLanes <= width; i += kNarrow * kLanes) {
        const MixTile<Number, kNarrow, kStride> tile{values.from(i), ahead,   n,
                                                     weights,        out + i, out_stride};
        with_rows<kMostRows>(n_rows, tile);
    }
    if (i < width) {
        const MixTile<Number, 1, kStride> tile{values.from(i), ahead,   n,
                                               weights,        out + i, out_stride};
        with_rows<kMostRows>(n_rows, tile);
    }
}

}  // namespace octavo::OCTAVO_LEVEL

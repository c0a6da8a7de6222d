// The formats of plain numbers: keys transposed (dim, 64), values (64, dim). Scores have positions
// in the lanes, sums have value dims in the lanes.
#pragma once

#include "attend.h"
#include "row_tiles.h"
#include "rows.h"

namespace octavo::OCTAVO_LEVEL {

// Where rows are few, twice as many vectors across hide the latencies.
constexpr int kWide = 4;
constexpr int kWideRows = kMostRows / 3;
// From so many rows on, a block of narrow numbers is first unpacked to floats.
constexpr int kUnpackRows = 2 * kMostRows + 1;
constexpr int kMixDims = 32;  // dims that `mix` takes at once

// scores = queries x keys. Queries lie [dims][kRows].
template <class Number, int kVectors>
struct ScoreTile {
    Strip<Number> keys;  // (dims, positions)
    Ahead* ahead;
    int dim;
    const float* q;
    float* scores;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        constexpr int kFetchRows = rows_between_fetches(kVectors * kLanes * sizeof(Number));
        F sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
        const Number* key = keys.data;
        for (int i = 0; i < dim; ++i, key += keys.step) {
            if (ahead && i % kFetchRows == 0) fetch(ahead);
            F k[kVectors];
            for (int v = 0; v < kVectors; ++v) k[v] = widen(key + v * kLanes);
            for (int r = 0; r < kRows; ++r) {
                const F x = splat(q[i * kRows + r]);
                for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(x, k[v], sums[r][v]);
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v)
                store(scores + r * kPageTokens + v * kLanes, sums[r][v]);
    }
};

// Rows of queries in tiles, each [dims][rows of the tile].
struct FloatQueries {
    const float* data;
    int dim;
    RowTiles tiles;
    int first_tile, end_tile;  // those wanted

    FloatQueries(const float* memory, int dim, int n_rows, int from, int to)
        : data(memory),
          dim(dim),
          tiles(n_rows),
          first_tile(tiles.holding(from)),
          end_tile(tiles.holding(to - 1) + 1) {}
    int n_rows() const { return tiles.begin(end_tile) - tiles.begin(first_tile); }
};

// Scores of one strip of positions, row tile by row tile.
template <int kVectors, class Number>
void score_strip(Strip<Number> keys, Ahead* ahead, const FloatQueries& queries, float* scores) {
    for (int t = queries.first_tile; t < queries.end_tile; ++t, ahead = nullptr) {
        const int row = queries.tiles.begin(t);
        const ScoreTile<Number, kVectors> tile{
            keys, ahead, queries.dim, queries.data + row * queries.dim, scores + row * kPageTokens};
        with_rows<kVectors == kWide ? kWideRows : kMostRows>(queries.tiles.height(t), tile);
    }
}

// CacheKernels::score for keys (dim, 64).
template <int kVectors, class Number>
void score_floats(Strip<Number> keys, Ahead* ahead, const FloatQueries& queries, float* scores,
                  float* scratch) {
    constexpr int kWidth = kVectors * kLanes;
    for (int p = 0; p < kPageTokens; p += kWidth) {
        if (sizeof(Number) < sizeof(float) && queries.n_rows() >= kUnpackRows) {
            unpack(keys.from(p), queries.dim, kWidth, scratch);
            score_strip<kVectors>(Strip<float>{scratch, kWidth}, nullptr, queries, scores + p);
        } else {
            score_strip<kVectors>(keys.from(p), ahead, queries, scores + p);
        }
    }
}

// CacheKernels::mix for values (64, dim): some dims, some rows at a time.
template <class Number>
void mix_floats(Strip<Number> values, Ahead* ahead, int dim, int n_positions, const float* weights,
                int n_rows, float* sums, int64_t sums_stride, float* scratch) {
    const auto rows = [&](auto strip, Ahead* fetched, int first_dim, int width) {
        const RowTiles tiles(n_rows);
        for (int t = 0; t < tiles.n_tiles; ++t, fetched = nullptr) {
            const int row = tiles.begin(t);
            add_products<kPageTokens>(strip, fetched, n_positions, weights + row * kPageTokens,
                                      tiles.height(t), width, sums + row * sums_stride + first_dim,
                                      sums_stride);
        }
    };
    for (int i = 0; i < dim; i += kMixDims) {
        const int width = dim - i < kMixDims ? dim - i : kMixDims;
        const int whole = width / kLanes * kLanes;
        if (whole > 0 && sizeof(Number) < sizeof(float) && n_rows >= kUnpackRows) {
            unpack(values.from(i), n_positions, whole, scratch);
            rows(Strip<float>{scratch, whole}, nullptr, i, whole);
        } else if (whole > 0) {
            rows(values.from(i), ahead, i, whole);
        }
        if (whole < width) {
            unpack_tail(values.from(i + whole), n_positions, width - whole, scratch);
            rows(Strip<float>{scratch, kLanes}, nullptr, i + whole, kLanes);
        }
    }
}

OCTAVO_INLINE void narrow(float* p, F a) {
    store(p, a);
}
OCTAVO_INLINE void narrow(uint16_t* p, F a) {
    store_half(p, a);
}

template <class Number>
struct PlainPages {
    static size_t key_bytes(int dim) {
        return sizeof(Number) * kPageTokens * static_cast<size_t>(dim);
    }
    static size_t value_bytes(int dim) { return key_bytes(dim); }

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

    static size_t query_bytes(int dim, int n_rows) { return sizeof(float) * dim * n_rows; }
    static void prepare_queries(const float* q, int dim, int n_rows, uint8_t* out) {
        const RowTiles tiles(n_rows);
        auto* floats = reinterpret_cast<float*>(out);
        for (int t = 0; t < tiles.n_tiles; ++t)
            for (int i = 0; i < dim; ++i)
                for (int row = tiles.begin(t); row < tiles.begin(t + 1); ++row)
                    *floats++ = q[row * dim + i];
    }

    static void score(const uint8_t* block, int dim, const uint8_t* queries, int n_rows, int from,
                      int to, float* scores, Ahead* ahead, float* scratch) {
        const FloatQueries q(reinterpret_cast<const float*>(queries), dim, n_rows, from, to);
        const Strip<Number> keys{reinterpret_cast<const Number*>(block), kPageTokens};
        if (n_rows <= kWideRows)
            score_floats<kWide>(keys, ahead, q, scores, scratch);
        else
            score_floats<kNarrow>(keys, ahead, q, scores, scratch);
    }

    static void mix(const uint8_t* block, int dim, int n_positions, const float* weights,
                    int n_rows, float* sums, int64_t sums_stride, Ahead* ahead, float* scratch) {
        const Strip<Number> values{reinterpret_cast<const Number*>(block), dim};
        mix_floats(values, ahead, dim, n_positions, weights, n_rows, sums, sums_stride, scratch);
    }
};

}  // namespace octavo::OCTAVO_LEVEL

// Attention over one block of a cache page, for any format: q . k with positions in the lanes,
// weights . v with value dims in the lanes.
//
// A format (kv/<stem>.h) is a struct with
//   Number               what it stores for a float: float, uint16_t (half) or int8_t
//   kScaleDims           dims of a position that share a half-precision scale; 0: no scales
//   block_bytes(dim)
//   keys(block, i)       the 64 numbers of dim i; those of dim i + 1 follow, within a scale group
//   key_scales(block, i)        the 64 scales of dim i's group
//   values(block, dim)          (64, dim) numbers
//   value_scales(block)         (64, groups) scales
//   write_keys, write_values    as in CacheKernels
#pragma once

#include "attend.h"
#include "row_tiles.h"

namespace octavo::OCTAVO_LEVEL {

// From so many rows on, a block is first unpacked to floats.
constexpr int kUnpackRows = 2 * kMostRows + 1;
// Dims that `mix` takes at once, and positions where values come straight from the cache.
constexpr int kMixDims = 32;
constexpr int kMixPositions = 16;

// scores = (scores +) scale * sum over dims of q * key.
template <class Number, int kVectors>
struct ScoreTile {
    Strip<Number> keys;  // (n_dims, positions)
    int n_dims;
    const float* q;
    int64_t q_stride;
    const uint16_t* scales;  // nullptr: none
    bool is_first;
    float* scores;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        F sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
        const Number* key = keys.data;
        for (int i = 0; i < n_dims; ++i, key += keys.step) {
            F k[kVectors];
            for (int v = 0; v < kVectors; ++v) k[v] = widen(key + v * kLanes);
            for (int r = 0; r < kRows; ++r) {
                const F x = splat(q[r * q_stride + i]);
                for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(x, k[v], sums[r][v]);
            }
        }
        for (int v = 0; v < kVectors; ++v) {
            const F scale = scales ? load_half(scales + v * kLanes) : splat(1.0f);
            for (int r = 0; r < kRows; ++r) {
                float* out = scores + r * kPageTokens + v * kLanes;
                F sum = sums[r][v];
                if (scales) sum = is_first ? mul(sum, scale) : fma(sum, scale, load(out));
                store(out, sum);
            }
        }
    }
};

// CacheKernels::score: scale group by scale group, strip by strip.
template <class Format>
struct Scores {
    using Number = typename Format::Number;

    const uint8_t* block;
    int dim;
    const float* q;
    int n_rows;
    float* scores;
    float* scratch;

    void run() const {
        const int group_dims = Format::kScaleDims ? Format::kScaleDims : dim;
        for (int i = 0; i < dim; i += group_dims) {
            const int n_dims = dim - i < group_dims ? dim - i : group_dims;
            if (n_rows <= kWideRows)
                group<kWide>(i, n_dims);
            else
                group<kNarrow>(i, n_dims);
        }
    }

    template <int kVectors>
    void group(int first_dim, int n_dims) const {
        constexpr int kWidth = kVectors * kLanes;
        for (int p = 0; p < kPageTokens; p += kWidth) {
            const Strip<Number> keys{Format::keys(block, first_dim) + p, kPageTokens};
            if (sizeof(Number) < sizeof(float) && n_rows >= kUnpackRows) {
                unpack(keys, n_dims, kWidth, scratch);
                strip<float, kVectors>({scratch, kWidth}, p, first_dim, n_dims);
            } else {
                strip<Number, kVectors>(keys, p, first_dim, n_dims);
            }
        }
    }

    template <class Source, int kVectors>
    void strip(Strip<Source> keys, int position, int first_dim, int n_dims) const {
        const uint16_t* scales =
            Format::kScaleDims ? Format::key_scales(block, first_dim) + position : nullptr;
        const RowTiles tiles(n_rows);
        for (int t = 0; t < tiles.n_tiles; ++t) {
            const int row = tiles.begin(t);
            const ScoreTile<Source, kVectors> tile{keys,
                                                   n_dims,
                                                   q + static_cast<int64_t>(row) * dim + first_dim,
                                                   dim,
                                                   scales,
                                                   first_dim == 0,
                                                   scores + row * kPageTokens + position};
            with_rows<kVectors == kWide ? kWideRows : kMostRows>(tiles.begin(t + 1) - row, tile);
        }
    }
};

// CacheKernels::mix: some positions, some dims, some rows at a time.
template <class Format>
struct Mix {
    using Number = typename Format::Number;

    const uint8_t* block;
    int dim;
    int n_positions;
    const float* weights;
    int n_rows;
    float* sums;
    int64_t sums_stride;
    float* scratch;

    void run() const {
        const bool unpacked = sizeof(Number) < sizeof(float) && n_rows >= kUnpackRows;
        const int step = unpacked ? kPageTokens : kMixPositions;
        for (int p = 0; p < n_positions; p += step) {
            const int n = n_positions - p < step ? n_positions - p : step;
            for (int i = 0; i < dim; i += kMixDims) dims(p, n, i, unpacked);
        }
    }

    // Dims first_dim .. first_dim + kMixDims - 1 of n positions.
    void dims(int position, int n, int first_dim, bool unpacked) const {
        const int width = dim - first_dim < kMixDims ? dim - first_dim : kMixDims;
        const int whole = width / kLanes * kLanes;
        const Number* data = Format::values(block, dim) + position * dim + first_dim;
        if (unpacked && whole > 0) {
            unpack(Strip<Number>{data, dim}, n, whole, scratch);
            rows<float>({scratch, whole}, position, n, first_dim, whole);
        } else if (whole > 0) {
            rows<Number>({data, dim}, position, n, first_dim, whole);
        }
        if (whole < width) {
            unpack_tail(Strip<Number>{data + whole, dim}, n, width - whole, scratch);
            rows<float>({scratch, kLanes}, position, n, first_dim + whole, kLanes);
        }
    }

    template <class Source>
    void rows(Strip<Source> values, int position, int n, int first_dim, int width) const {
        const RowTiles tiles(n_rows);
        for (int t = 0; t < tiles.n_tiles; ++t) {
            const int row = tiles.begin(t), count = tiles.begin(t + 1) - row;
            const float* w = weights + row * kPageTokens + position;
            float scaled[kMostRows * kPageTokens];
            if constexpr (Format::kScaleDims > 0) {
                scale_weights(w, count, position, n, first_dim / Format::kScaleDims, scaled);
                w = scaled;
            }
            add_products(values, n, w, kPageTokens, count, width,
                         sums + row * sums_stride + first_dim, sums_stride);
        }
    }

    // out[r * 64 + p] = w[r * 64 + p] * the scale of position p's group.
    void scale_weights(const float* w, int count, int position, int n, int group,
                       float* out) const {
        const int n_groups = (dim + Format::kScaleDims - 1) / Format::kScaleDims;
        const uint16_t* halves = Format::value_scales(block) + position * n_groups + group;
        uint16_t some[kPageTokens] = {};
        for (int p = 0; p < n; ++p) some[p] = halves[p * n_groups];
        for (int p = 0; p < n; p += kLanes) {
            const F scales = load_half(some + p);
            for (int r = 0; r < count; ++r)
                store(out + r * kPageTokens + p, mul(load(w + r * kPageTokens + p), scales));
        }
    }
};

template <class Format>
void score(const uint8_t* block, int dim, const float* q, int n_rows, float* scores,
           float* scratch) {
    Scores<Format>{block, dim, q, n_rows, scores, scratch}.run();
}

template <class Format>
void mix(const uint8_t* block, int dim, int n_positions, const float* weights, int n_rows,
         float* sums, int64_t sums_stride, float* scratch) {
    Mix<Format>{block, dim, n_positions, weights, n_rows, sums, sums_stride, scratch}.run();
}

// Defines cache_<stem>, the format's entry in the level's table.
#define OCTAVO_CACHE_FORMAT(stem)                                       \
    namespace octavo::OCTAVO_LEVEL {                                    \
    extern const CacheKernels cache_##stem;                             \
    const CacheKernels cache_##stem = {#stem,                           \
                                       kv_##stem::Format::block_bytes,  \
                                       kv_##stem::Format::write_keys,   \
                                       kv_##stem::Format::write_values, \
                                       score<kv_##stem::Format>,        \
                                       mix<kv_##stem::Format>};         \
    }

}  // namespace octavo::OCTAVO_LEVEL

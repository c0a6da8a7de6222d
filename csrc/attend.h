// What attention needs of a cache format. A page holds kPageTokens positions of one layer: the key
// blocks of all heads, then their value blocks; a block is one head's part. How positions lie in a
// block is the format's business: kv/<format>.h, whose Python twin is src/octavo/kv/formats.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

constexpr int kPageTokens = 64;

struct CacheKernels {
    const char* name;
    size_t (*block_bytes)(int dim);

    // Store rows x[0], x[1], ... (row i at x + i * stride) at positions from `position` on.
    void (*write_keys)(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                       int n_rows);
    void (*write_values)(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                         int n_rows);

    // scores[r * 64 + p] = row r of q (n_rows, dim) . key p, for all 64 positions, also those
    // that hold nothing yet. `scratch`: at least tile_scratch_floats().
    void (*score)(const uint8_t* block, int dim, const float* q, int n_rows, float* scores,
                  float* scratch);

    // sums[r * sums_stride + i] += sum over p < n_positions of weights[r * 64 + p] * value p [i].
    void (*mix)(const uint8_t* block, int dim, int n_positions, const float* weights, int n_rows,
                float* sums, int64_t sums_stride, float* scratch);

    // A result of `score` and `mix` depends on its row and the block only: not on n_rows, nor on
    // n_positions where the weights behind are zero.
};

// Scratch of `score` and `mix`: one strip of keys or values as floats.
inline size_t tile_scratch_floats(int dim) {
    return static_cast<size_t>(dim > kPageTokens ? dim : kPageTokens) * kPageTokens;
}

}  // namespace octavo

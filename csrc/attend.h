// What attention needs of a cache format. A page holds kPageTokens positions of one layer: the key
// blocks of all heads, then their value blocks; a block is one head's part. How positions lie in a
// block is the format's business: kv/<format>.h, whose Python twin is src/octavo/kv/formats.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

struct Ahead;

constexpr int kPageTokens = 64;

struct CacheKernels {
    const char* name;
    size_t (*key_bytes)(int dim);  // of a key block
    size_t (*value_bytes)(int dim);

    // Store rows x[0], x[1], ... (row i at x + i * stride) at positions from `position` on.
    void (*write_keys)(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                       int n_rows);
    void (*write_values)(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                         int n_rows);

    // Queries as `score` reads them, 64-byte aligned.
    size_t (*query_bytes)(int dim, int n_rows);
    void (*prepare_queries)(const float* q, int dim, int n_rows, uint8_t* out);

    // scores[r * 64 + p] = query r . key p for rows from <= r < to at least, and for all 64
    // positions, also those that hold nothing yet. `scratch`: see tile_scratch_floats. `ahead`:
    // what to fetch meanwhile, or nullptr.
    void (*score)(const uint8_t* block, int dim, const uint8_t* queries, int n_rows, int from,
                  int to, float* scores, Ahead* ahead, float* scratch);

    // sums[r * sums_stride + i] += sum over p < n_positions of weights[r * 64 + p] * value p [i].
    void (*mix)(const uint8_t* block, int dim, int n_positions, const float* weights, int n_rows,
                float* sums, int64_t sums_stride, Ahead* ahead, float* scratch);

    // A result of `score` and `mix` depends on its row and the block only: not on n_rows, nor on
    // n_positions where the weights behind are zero.
};

// Scratch of `score` and `mix`: a strip of keys or values as floats, or scales.
inline size_t tile_scratch_floats(int dim) {
    return static_cast<size_t>(dim > kPageTokens ? dim : kPageTokens) * kPageTokens;
}

// Defines cache_<stem>, the entry in a level's table of the format kv/<stem>.h.
#define OCTAVO_CACHE_FORMAT(stem)                                          \
    namespace octavo::OCTAVO_LEVEL {                                       \
    extern const CacheKernels cache_##stem;                                \
    const CacheKernels cache_##stem = {#stem,                              \
                                       kv_##stem::Format::key_bytes,       \
                                       kv_##stem::Format::value_bytes,     \
                                       kv_##stem::Format::write_keys,      \
                                       kv_##stem::Format::write_values,    \
                                       kv_##stem::Format::query_bytes,     \
                                       kv_##stem::Format::prepare_queries, \
                                       kv_##stem::Format::score,           \
                                       kv_##stem::Format::mix};            \
    }

}  // namespace octavo

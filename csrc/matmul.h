// Many tokens times a weight: weights are unpacked into panels (panel.h) and multiplied with
// tiles of tokens by the dot instruction, weight rows in the lanes.
//
// A result depends on its row and its token only, whatever else is in the call, and is the same to
// the bit as that of the dot products for few tokens (format_dot.h).
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

// 32 columns of a tile of tokens, as `multiply_panels` reads them.
struct TokenGroup {
    uint32_t words[8][kTileTokens];  // four int8 values each, flipped by kFlip
    float scale[kTileTokens];
    // scale * sum of q, and the sum of q: over 16 values each, and over all.
    float sum[2][kTileTokens], sum32[kTileTokens];
    int32_t whole[2][kTileTokens], whole32[kTileTokens];
};

// Tokens in tiles: group g of tile i at groups[i * n_groups + g].
struct TokenTiles {
    TokenGroup* groups;
    int n_tokens;
    int n_groups;  // columns / 32

    int n_tiles() const { return (n_tokens + kTileTokens - 1) / kTileTokens; }
    static size_t bytes(int n_tokens, int n_columns) {
        const size_t tiles = (n_tokens + kTileTokens - 1) / kTileTokens;
        return tiles * (n_columns / 32) * sizeof(TokenGroup);
    }
};

// The same for float weights: value of column c of token t of tile i at
// values[(i * n_columns + c) * kTileTokens + t].
struct FloatTiles {
    float* values;
    int n_tokens;
    int n_columns;

    int n_tiles() const { return (n_tokens + kTileTokens - 1) / kTileTokens; }
    static size_t bytes(int n_tokens, int n_columns) {
        const size_t tiles = (n_tokens + kTileTokens - 1) / kTileTokens;
        return tiles * n_columns * kTileTokens * sizeof(float);
    }
};

// Fills tile `tile` with the tokens that rows[0], rows[1], ... name (tile * kTileTokens + i where
// `rows` is nullptr); those from `n_tokens` on become zeros.
void fill_tile(const QuantRows& x, const int32_t* rows, const TokenTiles& tiles, int tile);

// Adds an operation that fills all tiles from x's rows in order.
TokenTiles tile_tokens(Program& program, const QuantRows& x);

// Weight rows that one call of `multiply_rows` handles best: a multiple of it, from a multiple.
constexpr int kTileRows = kTilePanels * kPanelRows;

// Scratch that `multiply_rows` needs.
size_t multiply_scratch_bytes();

// out[t * out_stride + r - row0] for rows row0 <= r < min(row0 + kTileRows, w.n_rows) and the
// tokens of tiles tile0 <= i < tile1.
void multiply_rows(const Matrix& w, int row0, const TokenTiles& x, int tile0, int tile1, float* out,
                   int64_t out_stride, void* scratch);

// y (T, N) = x w^T + bias, as operations. One x for several weights is tiled once.
void matmul(Program& program, const Matrix& w, const TokenTiles& x, const float* bias, float* out,
            int64_t out_stride);

// The float twins.
void fill_float_tile(const Heads& x, const int32_t* rows, const FloatTiles& tiles, int tile);
FloatTiles tile_floats(Program& program, const Heads& x);
void multiply_float_rows(const Matrix& w, int row0, const FloatTiles& x, int tile0, int tile1,
                         float* out, int64_t out_stride, void* scratch);
void matmul_floats(Program& program, const Matrix& w, const FloatTiles& x, const float* bias,
                   float* out, int64_t out_stride);

}  // namespace octavo::OCTAVO_LEVEL

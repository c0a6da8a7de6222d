// Rows of an expert's matrix times the tokens that use it.
#pragma once

#include "linear.h"
#include "matmul.h"
#include "pairs.h"

namespace octavo::OCTAVO_LEVEL {

// Rows that matrices multiply, in the forms that their formats need. Row of the pair at sorted
// position i: rows[i], or i where `rows` is nullptr.
struct Factor {
    Heads floats;
    QuantRows quant;
    const int32_t* rows;
    TokenTiles tiles;  // of all groups, one after the other
    FloatTiles float_tiles;

    int row(int position) const { return rows ? rows[position] : position; }
};

class FillGroupTiles final : public Op {
  public:
    FillGroupTiles(const Pairs* pairs, const Factor& x) : pairs_(pairs), x_(x) {}

    int prepare(int) override { return pairs_->n_groups; }

    void run(int chunk, Thread& thread) override {
        const Group& group = pairs_->groups[chunk];
        auto* rows = static_cast<int32_t*>(thread.scratch(group.n * sizeof(int32_t)));
        for (int i = 0; i < group.n; ++i) rows[i] = x_.row(group.first + i);
        const int n_tiles = (group.n + kTileTokens - 1) / kTileTokens;
        for (int i = 0; i < n_tiles; ++i) {
            if (x_.tiles.groups) fill_tile(x_.quant, rows, group_tiles(x_.tiles, group), i);
            if (x_.float_tiles.values)
                fill_float_tile(x_.floats, rows, group_tiles(x_.float_tiles, group), i);
        }
    }

    static TokenTiles group_tiles(const TokenTiles& all, const Group& group) {
        return {all.groups + static_cast<size_t>(group.first_tile) * all.n_groups, group.n,
                all.n_groups};
    }
    static FloatTiles group_tiles(const FloatTiles& all, const Group& group) {
        const size_t tile = static_cast<size_t>(all.n_columns) * kTileTokens;
        return {all.values + group.first_tile * tile, group.n, all.n_columns};
    }

  private:
    const Pairs* pairs_;
    Factor x_;
};

// Rows row0 .. row1 - 1 of one expert's matrix.
struct ExpertRows {
    Matrix matrix;
    int row0;
    int row1;
};

inline ExpertRows rows_of(const Matrix& bank, int rows_per_expert, int expert, int row0, int row1) {
    Matrix m = bank;
    m.rows.data += static_cast<size_t>(expert) * rows_per_expert * m.rows.row_bytes;
    m.rows.n_rows = row1 < rows_per_expert ? row1 : rows_per_expert;
    return {m, row0, m.rows.n_rows};
}

inline void ask_for_rows(const ExpertRows& w) {
    ask_for(w.matrix.rows, w.row0, w.row1);
}

// out[(i - from) * stride + r - w.row0] for the pairs from..to of a group; `tiled`: to - from and
// from are multiples of kTileTokens, but for the group's end, and rows one tile's.
inline void multiply(const ExpertRows& w, const Factor& x, const Group& group, int from, int to,
                     bool tiled, float* out, int64_t stride, void* scratch) {
    const Matrix& m = w.matrix;
    if (tiled) {
        const int tile0 = from / kTileTokens;
        const int tile1 = (to + kTileTokens - 1) / kTileTokens;
        if (m.format->is_float)
            multiply_float_rows(m, w.row0, FillGroupTiles::group_tiles(x.float_tiles, group), tile0,
                                tile1, out, stride, scratch);
        else
            multiply_rows(m, w.row0, FillGroupTiles::group_tiles(x.tiles, group), tile0, tile1, out,
                          stride, scratch);
        return;
    }
    BlockRows rows = m.rows;
    rows.data += w.row0 * rows.row_bytes;
    rows.n_rows = w.row1 - w.row0;
    for (int i = from, n; i < to; i += n) {
        // Neighbours in x are taken together: their weights are read once.
        const int row = x.row(group.first + i);
        for (n = 1; n < kMaxColumns && i + n < to && x.row(group.first + i + n) == row + n;) ++n;
        float* y = out + (i - from) * stride - row * stride;  // `dot` counts from token 0
        if (m.format->is_float)
            m.format->dot_floats(rows, 0, rows.n_rows, x.floats.data, x.floats.token, row, row + n,
                                 y, stride);
        else
            m.format->dot(rows, 0, rows.n_rows, x.quant, row, row + n, y, stride);
    }
}

}  // namespace octavo::OCTAVO_LEVEL

#include "matmul.h"

#include "chunks.h"
#include "panel.h"
#include "program.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// Columns unpacked at once: two panels of them and a tile of tokens stay in the first-level cache.
constexpr int kBlockColumns = 512;
constexpr int kFloatBlockColumns = 128;
// Tokens that share an unpacked panel: their tiles stay in the second-level cache.
constexpr int kBlockTokens = 64 * kTileTokens;

constexpr size_t kPanelBytes = sizeof(PanelGroup<2>) * (kBlockColumns / 32);

// One tile: kTilePanels panels x kTileTokens tokens over n_groups groups.
template <int kHalves, bool kOffset, int kMost>
struct Tile {
    FloatLanes sums[kTilePanels][kTileTokens];
    int zero;  // of the format

    OCTAVO_INLINE IntLanes start_of(const PanelGroup<kHalves>& group, const TokenGroup& x, int half,
                                    int t) const {
        if constexpr (kFlip != 0) return load_lanes(group.start[half]);
        return splat_integer(-zero * (kHalves == 2 ? x.whole[half][t] : x.whole32[t]));
    }

    OCTAVO_INLINE void add_half(const PanelGroup<kHalves>* const groups[kTilePanels],
                                const TokenGroup& x, int half) {
        constexpr int kWords = 8 / kHalves;
        PanelSums<kMost, kWords> acc[kTilePanels][kTileTokens];
        for (int p = 0; p < kTilePanels; ++p)
            for (int t = 0; t < kTileTokens; ++t) acc[p][t].begin(start_of(*groups[p], x, half, t));
        for (int i = 0; i < kWords; ++i) {
            const int word = half * kWords + i;
            WeightLanes w[kTilePanels];
            for (int p = 0; p < kTilePanels; ++p) w[p] = load_weights(groups[p]->values[word][0]);
            for (int t = 0; t < kTileTokens; ++t) {
                const TokenWord token = splat_word(x.words[word][t]);
                for (int p = 0; p < kTilePanels; ++p) acc[p][t].add_word(i, w[p], token);
            }
        }
        for (int p = 0; p < kTilePanels; ++p) {
            const FloatLanes scale = load_lanes(groups[p]->scale[half]);
            for (int t = 0; t < kTileTokens; ++t)
                sums[p][t] =
                    fma(mul(to_float(acc[p][t].sum()), splat_lanes(x.scale[t])), scale, sums[p][t]);
            if constexpr (kOffset) {
                const FloatLanes offset = load_lanes(groups[p]->offset[half]);
                for (int t = 0; t < kTileTokens; ++t) {
                    const float sum = kHalves == 2 ? x.sum[half][t] : x.sum32[t];
                    sums[p][t] = fma(offset, splat_lanes(sum), sums[p][t]);
                }
            }
        }
    }

    OCTAVO_INLINE void add_groups(const PanelGroup<kHalves>* const panels[kTilePanels],
                                  const TokenGroup* x, int n_groups) {
        const PanelGroup<kHalves>* groups[kTilePanels];
        for (int p = 0; p < kTilePanels; ++p) groups[p] = panels[p];
        for (int g = 0; g < n_groups; ++g) {
            for (int half = 0; half < kHalves; ++half) add_half(groups, x[g], half);
            for (int p = 0; p < kTilePanels; ++p) ++groups[p];
        }
    }
};

// Where a tile's results lie: rows of `out` from row0 on, of which n_rows exist.
struct TilePlace {
    float* out;
    int64_t stride;
    int n_rows;
    int n_tokens;
};

OCTAVO_INLINE FloatLanes load_sums(const TilePlace& place, int p, int t) {
    const int n = place.n_rows - p * kPanelRows;
    const float* from = place.out + t * place.stride + p * kPanelRows;
    if (t >= place.n_tokens || n <= 0) return splat_lanes(0.0f);
    return n >= kPanelRows ? load_lanes(from) : load_some(from, n);
}

OCTAVO_INLINE void store_sums(const TilePlace& place, int p, int t, FloatLanes sums) {
    const int n = place.n_rows - p * kPanelRows;
    float* out = place.out + t * place.stride + p * kPanelRows;
    if (n >= kPanelRows)
        store(out, sums);
    else if (n > 0)
        store_some(out, sums, n);
}

// `goes_on`: the sums go on from what `out` holds.
template <int kHalves, bool kOffset, int kMost>
void multiply_tile(const PanelGroup<kHalves>* const panels[kTilePanels], const TokenGroup* x,
                   int n_groups, int zero, const TilePlace& place, bool goes_on) {
    Tile<kHalves, kOffset, kMost> tile;
    tile.zero = zero;
    for (int p = 0; p < kTilePanels; ++p)
        for (int t = 0; t < kTileTokens; ++t)
            tile.sums[p][t] = goes_on ? load_sums(place, p, t) : splat_lanes(0.0f);
    tile.add_groups(panels, x, n_groups);
    for (int t = 0; t < place.n_tokens; ++t)
        for (int p = 0; p < kTilePanels; ++p) store_sums(place, p, t, tile.sums[p][t]);
}

int rows_from(const Matrix& w, int row0) {
    const int n = w.rows.n_rows - row0;
    return n < kTileRows ? n : kTileRows;
}

template <int kHalves, bool kOffset, int kMost>
void multiply(const Matrix& w, int row0, const TokenTiles& x, int tile0, int tile1, float* out,
              int64_t out_stride, void* scratch) {
    const int n_rows = rows_from(w, row0);
    for (int column = 0; column < w.rows.n_columns; column += kBlockColumns) {
        const int left = w.rows.n_columns - column;
        const int n_columns = left < kBlockColumns ? left : kBlockColumns;
        const PanelGroup<kHalves>* panels[kTilePanels];
        for (int p = 0; p < kTilePanels; ++p) {
            void* panel = static_cast<char*>(scratch) + p * kPanelBytes;
            w.format->pack_panel(w.rows, row0 + p * kPanelRows, column, n_columns, panel);
            panels[p] = static_cast<const PanelGroup<kHalves>*>(panel);
        }
        for (int i = tile0; i < tile1; ++i) {
            const int token = i * kTileTokens;
            const int left_tokens = x.n_tokens - token;
            const TilePlace place{out + (token - tile0 * kTileTokens) * out_stride, out_stride,
                                  n_rows, left_tokens < kTileTokens ? left_tokens : kTileTokens};
            multiply_tile<kHalves, kOffset, kMost>(
                panels, x.groups + static_cast<size_t>(i) * x.n_groups + column / 32,
                n_columns / 32, w.format->zero, place, column > 0);
        }
    }
}

using Multiply = void (*)(const Matrix&, int, const TokenTiles&, int, int, float*, int64_t, void*);

template <int kMost>
Multiply multiply_for(const FormatKernels& format) {
    const bool halves = format.scale_group == 16;
    if (format.has_offset) return halves ? multiply<2, true, kMost> : multiply<1, true, kMost>;
    return halves ? multiply<2, false, kMost> : multiply<1, false, kMost>;
}

class FillTiles final : public Op {
  public:
    FillTiles(const QuantRows& x, const TokenTiles& tiles) : x_(x), tiles_(tiles) {}

    int prepare(int) override {
        chunks_ = chunks_of(tiles_.n_tiles(), kTileTokens * x_.n_columns / 4.0, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int i = chunks_.begin(chunk); i < chunks_.end(chunk); ++i)
            fill_tile(x_, nullptr, tiles_, i);
    }

  private:
    QuantRows x_;
    TokenTiles tiles_;
    Chunks chunks_;
};

class FillFloatTiles final : public Op {
  public:
    FillFloatTiles(const Heads& x, const FloatTiles& tiles) : x_(x), tiles_(tiles) {}

    int prepare(int) override {
        chunks_ = chunks_of(tiles_.n_tiles(), kTileTokens * x_.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int i = chunks_.begin(chunk); i < chunks_.end(chunk); ++i)
            fill_float_tile(x_, nullptr, tiles_, i);
    }

  private:
    Heads x_;
    FloatTiles tiles_;
    Chunks chunks_;
};

void multiply_float_tile(const float* const panels[kTilePanels], const float* x, int n_columns,
                         const TilePlace& place, bool goes_on) {
    FloatLanes sums[kTilePanels][kTileTokens];
    for (int p = 0; p < kTilePanels; ++p)
        for (int t = 0; t < kTileTokens; ++t)
            sums[p][t] = goes_on ? load_sums(place, p, t) : splat_lanes(0.0f);
    for (int c = 0; c < n_columns; ++c) {
        FloatLanes w[kTilePanels];
        for (int p = 0; p < kTilePanels; ++p) w[p] = load_lanes(panels[p] + c * kPanelRows);
        for (int t = 0; t < kTileTokens; ++t) {
            const FloatLanes token = splat_lanes(x[c * kTileTokens + t]);
            for (int p = 0; p < kTilePanels; ++p) sums[p][t] = fma(w[p], token, sums[p][t]);
        }
    }
    for (int t = 0; t < place.n_tokens; ++t)
        for (int p = 0; p < kTilePanels; ++p) store_sums(place, p, t, sums[p][t]);
}

// Chunks of one tile of weight rows x one block of tokens; the blocks of a row tile follow each
// other, so that threads share no weights but at the ends.
template <class Tiles>
class MatMul final : public Op {
  public:
    MatMul(const Matrix& w, const Tiles& x, const float* bias, float* out, int64_t out_stride)
        : w_(w), x_(x), bias_(bias), out_(out), out_stride_(out_stride) {}

    int prepare(int) override {
        n_blocks_ = (x_.n_tiles() + kBlockTiles - 1) / kBlockTiles;
        return (w_.rows.n_rows + kTileRows - 1) / kTileRows * n_blocks_;
    }

    void run(int chunk, Thread& thread) override {
        const int row0 = chunk / n_blocks_ * kTileRows;
        const int tile0 = chunk % n_blocks_ * kBlockTiles;
        const int tile1 = tile0 + kBlockTiles < x_.n_tiles() ? tile0 + kBlockTiles : x_.n_tiles();
        float* out = out_ + tile0 * static_cast<int64_t>(kTileTokens) * out_stride_ + row0;
        void* scratch = thread.scratch(multiply_scratch_bytes());
        multiply_chunk(x_, row0, tile0, tile1, out, scratch);
        if (!bias_) return;
        const int n_tokens = x_.n_tokens < tile1 * kTileTokens ? x_.n_tokens : tile1 * kTileTokens;
        for (int t = tile0 * kTileTokens; t < n_tokens; ++t, out += out_stride_)
            for (int r = 0; r < rows_from(w_, row0); ++r) out[r] += bias_[row0 + r];
    }

  private:
    static constexpr int kBlockTiles = kBlockTokens / kTileTokens;

    void multiply_chunk(const TokenTiles& x, int row0, int tile0, int tile1, float* out,
                        void* scratch) const {
        multiply_rows(w_, row0, x, tile0, tile1, out, out_stride_, scratch);
    }
    void multiply_chunk(const FloatTiles& x, int row0, int tile0, int tile1, float* out,
                        void* scratch) const {
        multiply_float_rows(w_, row0, x, tile0, tile1, out, out_stride_, scratch);
    }

    Matrix w_;
    Tiles x_;
    const float* bias_;
    float* out_;
    int64_t out_stride_;
    int n_blocks_ = 0;
};

}  // namespace

void fill_tile(const QuantRows& x, const int32_t* rows, const TokenTiles& tiles, int tile) {
    TokenGroup* out = tiles.groups + static_cast<size_t>(tile) * tiles.n_groups;
    for (int t = 0; t < kTileTokens; ++t) {
        const int token = tile * kTileTokens + t;
        const bool exists = token < tiles.n_tokens;
        const size_t row = !exists ? 0 : rows ? rows[token] : token;
        const int8_t* q = x.q + row * x.padded;
        const size_t at32 = row * (x.padded / 32), at16 = row * (x.padded / 16);
        for (int g = 0; g < tiles.n_groups; ++g) {
            uint32_t words[8];
            store(words, bits_xor(load_bytes(q + g * 32), splat_byte(kFlip)));
            for (int i = 0; i < 8; ++i) out[g].words[i][t] = words[i];
            out[g].scale[t] = exists ? x.scale[at32 + g] : 0.0f;
            out[g].sum32[t] = exists ? x.sum32[at32 + g] : 0.0f;
            out[g].whole32[t] = exists ? x.whole32[at32 + g] : 0;
            for (int half = 0; half < 2; ++half) {
                out[g].sum[half][t] = exists ? x.sum16[at16 + 2 * g + half] : 0.0f;
                out[g].whole[half][t] = exists ? x.whole16[at16 + 2 * g + half] : 0;
            }
        }
    }
}

void fill_float_tile(const Heads& x, const int32_t* rows, const FloatTiles& tiles, int tile) {
    float* out = tiles.values + static_cast<size_t>(tile) * tiles.n_columns * kTileTokens;
    for (int t = 0; t < kTileTokens; ++t) {
        const int token = tile * kTileTokens + t;
        const bool exists = token < tiles.n_tokens;
        const float* in = !exists ? nullptr : x.at(rows ? rows[token] : token, 0);
        for (int c = 0; c < tiles.n_columns; ++c) out[c * kTileTokens + t] = in ? in[c] : 0.0f;
    }
}

TokenTiles tile_tokens(Program& program, const QuantRows& x) {
    TokenTiles tiles{
        static_cast<TokenGroup*>(program.passing(TokenTiles::bytes(x.n_rows, x.n_columns))),
        x.n_rows, x.n_columns / 32};
    program.add(new FillTiles(x, tiles));
    return tiles;
}

FloatTiles tile_floats(Program& program, const Heads& x) {
    FloatTiles tiles{static_cast<float*>(program.passing(FloatTiles::bytes(x.n_tokens, x.dim))),
                     x.n_tokens, x.dim};
    program.add(new FillFloatTiles(x, tiles));
    return tiles;
}

size_t multiply_scratch_bytes() {
    const size_t floats = kTilePanels * kFloatBlockColumns * kPanelRows * sizeof(float);
    const size_t integers = kTilePanels * kPanelBytes;
    return floats > integers ? floats : integers;
}

void multiply_rows(const Matrix& w, int row0, const TokenTiles& x, int tile0, int tile1, float* out,
                   int64_t out_stride, void* scratch) {
    const FormatKernels& format = *w.format;
    Multiply multiply_format = multiply_for<127>(format);
#if defined(OCTAVO_LEVEL_avx2) || defined(OCTAVO_LEVEL_baseline)
    if (format.most == 0) multiply_format = multiply_for<0>(format);
    if (format.most && format.most <= 63) multiply_format = multiply_for<63>(format);
    if (format.most && format.most <= 31) multiply_format = multiply_for<31>(format);
    if (format.most && format.most <= 15) multiply_format = multiply_for<15>(format);
#endif
    multiply_format(w, row0, x, tile0, tile1, out, out_stride, scratch);
}

void multiply_float_rows(const Matrix& w, int row0, const FloatTiles& x, int tile0, int tile1,
                         float* out, int64_t out_stride, void* scratch) {
    const int n_rows = rows_from(w, row0);
    for (int column = 0; column < w.rows.n_columns; column += kFloatBlockColumns) {
        const int left = w.rows.n_columns - column;
        const int n_columns = left < kFloatBlockColumns ? left : kFloatBlockColumns;
        const float* panels[kTilePanels];
        for (int p = 0; p < kTilePanels; ++p) {
            float* panel = static_cast<float*>(scratch) + p * kFloatBlockColumns * kPanelRows;
            w.format->pack_panel(w.rows, row0 + p * kPanelRows, column, n_columns, panel);
            panels[p] = panel;
        }
        for (int i = tile0; i < tile1; ++i) {
            const int token = i * kTileTokens;
            const int n_tokens = x.n_tokens - token;
            const TilePlace place{out + (token - tile0 * kTileTokens) * out_stride, out_stride,
                                  n_rows, n_tokens < kTileTokens ? n_tokens : kTileTokens};
            const float* values =
                x.values + (static_cast<size_t>(i) * x.n_columns + column) * kTileTokens;
            multiply_float_tile(panels, values, n_columns, place, column > 0);
        }
    }
}

void matmul(Program& program, const Matrix& w, const TokenTiles& x, const float* bias, float* out,
            int64_t out_stride) {
    program.add(new MatMul<TokenTiles>(w, x, bias, out, out_stride));
}

void matmul_floats(Program& program, const Matrix& w, const FloatTiles& x, const float* bias,
                   float* out, int64_t out_stride) {
    program.add(new MatMul<FloatTiles>(w, x, bias, out, out_stride));
}

}  // namespace octavo::OCTAVO_LEVEL

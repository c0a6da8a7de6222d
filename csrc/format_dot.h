// Dot products of a few tokens, weight rows in the lanes of vectors. A group of 32
// columns of all rows is turned over once for all tokens.
//
// A sum runs over the columns of its row in order, in int32 within 32 columns (or 16, where those
// share a scale) and in float over the groups, exactly as in matmul.cpp: so it depends on its row
// and its token only, however many tokens are multiplied together.
#pragma once

#include "format_groups.h"

namespace octavo::OCTAVO_LEVEL {

// How far ahead of its use a row's memory is asked for: the processor's own guesses end with a
// page.
constexpr int kPrefetchBytes = 512;

// Tokens whose sums are in registers together.
#if defined(OCTAVO_LEVEL_avx512)
constexpr int kTokensInRegisters = 8;
#else
constexpr int kTokensInRegisters = 4;
#endif

// kPanelRows weight rows times kTokens tokens.
template <class Q, int kTokens>
struct LaneTile {
    static constexpr int kScales = kSpan / Q::kScaleGroup;
    static constexpr int kHalves = kGroup / Q::kScaleGroup;
    static constexpr int kWords = 8 / kHalves;
    static constexpr int kSpanBytes = kSpan / Q::kBlock * Q::kBytes;

    const uint8_t* span[kPanelRows];
    // Of the first token; those of token t lie `padded` and its parts further each.
    const int8_t* q;
    const float* x_scale;
    const float* x_sum;      // one for each scale
    const int32_t* x_whole;  // likewise
    ptrdiff_t padded;
    FloatLanes sums[kTokens];
    SpanScales<Q> scales;

    // One half of a group, or all of it. `word(i)` gives its words in turn.
    template <class Word>
    OCTAVO_INLINE void add_words(int group, int half, Word word) {
        if constexpr (kTokens > kTokensInRegisters) {
            add_tokens<0, kTokensInRegisters>(group, half, word);
            add_tokens<kTokensInRegisters, kTokens - kTokensInRegisters>(group, half, word);
        } else {
            add_tokens<0, kTokens>(group, half, word);
        }
    }

    template <int kFirst, int kAtOnce, class Word>
    OCTAVO_INLINE void add_tokens(int group, int half, Word word) {
        const int at = group * kHalves + half;
        WordSums<most_of<Q>(), kWords> acc[kAtOnce];
        for (int t = 0; t < kAtOnce; ++t) {
            if constexpr (kLift<Q> == 0)
                acc[t].begin(splat_integer(0));
            else
                acc[t].begin(splat_integer(-kLift<Q> *
                                           x_whole[(kFirst + t) * (padded / Q::kScaleGroup) + at]));
        }
        for (int i = 0; i < kWords; ++i) {
            WeightLanes w = word(half * kWords + i);
            if constexpr (kFlipped<Q>) w = flip(w);
            const int8_t* x = q + group * kGroup + (half * kWords + i) * 4;
            for (int t = 0; t < kAtOnce; ++t)
                acc[t].add_word(i, w, splat_word(read<uint32_t>(x + (kFirst + t) * padded)));
        }
        const FloatLanes scale = load_lanes(scales.scale[at]);
        for (int t = 0; t < kAtOnce; ++t) {
            const FloatLanes x = splat_lanes(x_scale[(kFirst + t) * (padded / kGroup) + group]);
            FloatLanes& sum = sums[kFirst + t];
            sum = fma(mul(to_float(acc[t].sum()), x), scale, sum);
        }
        if constexpr (kHasOffset<Q>) {
            const FloatLanes offset = load_lanes(scales.offset[at]);
            for (int t = 0; t < kAtOnce; ++t) {
                const float x = x_sum[(kFirst + t) * (padded / Q::kScaleGroup) + at];
                sums[kFirst + t] = fma(offset, splat_lanes(x), sums[kFirst + t]);
            }
        }
    }

    // The last groups of a row.
    OCTAVO_INLINE void add_rest(int n_groups) {
        scales.read(span, n_groups);
        each_group<Q>(span, n_groups, [&](auto group, auto word) {
            unrolled<kHalves>([&](auto half) { add_words(group, half, word); });
        });
    }

    OCTAVO_INLINE void add_span() {
        scales.read(span, kSpan / kGroup);
        each_group_of_span<Q>(span, [&](auto group, auto word) {
            ask_ahead(group);
            unrolled<kHalves>([&](auto half) { add_words(group, half, word); });
        });
        for (int r = 0; r < kPanelRows; ++r) span[r] += kSpanBytes;
        q += kSpan;
        x_scale += kSpan / kGroup;
        x_sum += kScales;
        x_whole += kScales;
    }

    // Asks for the memory of some rows, with each group for its share of them: a burst would wait
    // until the processor can note so many.
    OCTAVO_INLINE void ask_ahead(int group) {
        constexpr int kRows = kPanelRows / (kSpan / kGroup);
        for (int r = group * kRows; r < (group + 1) * kRows; ++r)
            for (int i = 0; i < kSpanBytes; i += 64) OCTAVO_PREFETCH(span[r] + kPrefetchBytes + i);
    }
};

// The rows of a tile: `n` of them, kPanelRows at most, `step` apart.
struct TileRows {
    int first, step, n;

    int at(int i) const { return first + (i < n ? i : n - 1) * step; }
};

// Those rows (missing ones repeat the last) times the tokens from t0 on.
template <class Q, int kTokens>
inline void dot_tile(const BlockRows& w, const TileRows& rows, const QuantRows& x, int t0, float* y,
                     int64_t y_stride) {
    LaneTile<Q, kTokens> tile;
    for (int r = 0; r < kPanelRows; ++r) tile.span[r] = w.data + rows.at(r) * w.row_bytes;
    const bool is_whole = Q::kScaleGroup == kGroup;
    const int64_t at = static_cast<int64_t>(t0) * x.padded;
    tile.q = x.q + at;
    tile.x_scale = x.scale + at / kGroup;
    tile.x_sum = (is_whole ? x.sum32 : x.sum16) + at / Q::kScaleGroup;
    tile.x_whole = (is_whole ? x.whole32 : x.whole16) + at / Q::kScaleGroup;
    tile.padded = x.padded;
    for (int t = 0; t < kTokens; ++t) tile.sums[t] = splat_lanes(0.0f);
    for (int i = 0; i < w.n_columns / kSpan; ++i) tile.add_span();
    if constexpr (Q::kBlock < kSpan) {
        if (const int n_groups = w.n_columns % kSpan / kGroup) tile.add_rest(n_groups);
    }
    for (int t = 0; t < kTokens; ++t) {
        alignas(64) float sums[kPanelRows];
        store(sums, tile.sums[t]);
        for (int r = 0; r < rows.n; ++r) y[(t0 + t) * y_stride + rows.at(r)] = sums[r];
    }
}

// The weights of a tile are in the nearest cache when other tokens follow.
template <class Q>
void dot_rows(const BlockRows& w, const TileRows& rows, const QuantRows& x, int t0, int t1,
              float* y, int64_t y_stride) {
    int t = t0;
    for (; t + 8 <= t1; t += 8) dot_tile<Q, 8>(w, rows, x, t, y, y_stride);
    if (t + 4 <= t1) dot_tile<Q, 4>(w, rows, x, t, y, y_stride), t += 4;
    if (t + 2 <= t1) dot_tile<Q, 2>(w, rows, x, t, y, y_stride), t += 2;
    if (t < t1) dot_tile<Q, 1>(w, rows, x, t, y, y_stride);
}

// FormatKernels::dot. The rows of a tile are far apart, so that memory is read as so many streams:
// it is a half faster when it is asked for several pages at once, and what a stream asks for ahead
// is the beginning of the next one where it ends.
template <class Q>
void dot(const BlockRows& w, int row0, int row1, const QuantRows& x, int t0, int t1, float* y,
         int64_t y_stride) {
    const int step = (row1 - row0) / kPanelRows;
    for (int i = 0; i < step; ++i)
        dot_rows<Q>(w, {row0 + i, step, kPanelRows}, x, t0, t1, y, y_stride);
    const int rest = row0 + step * kPanelRows;
    if (rest < row1) dot_rows<Q>(w, {rest, 1, row1 - rest}, x, t0, t1, y, y_stride);
}

}  // namespace octavo::OCTAVO_LEVEL

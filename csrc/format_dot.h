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

// One or two tokens, as they were quantised.
template <class Q>
struct RowTokens {
    static constexpr bool kWhole = Q::kScaleGroup == kGroup;
    static constexpr int kScales = kSpan / Q::kScaleGroup;

    // Of the first token; those of token t lie `padded` and its parts further each.
    const int8_t* q;
    const float* scales;
    const float* sums;      // one for each scale
    const int32_t* wholes;  // likewise
    ptrdiff_t padded;

    RowTokens(const QuantRows& x, int t0) : padded(x.padded) {
        const int64_t at = static_cast<int64_t>(t0) * x.padded;
        q = x.q + at;
        scales = x.scale + at / kGroup;
        sums = (kWhole ? x.sum32 : x.sum16) + at / Q::kScaleGroup;
        wholes = (kWhole ? x.whole32 : x.whole16) + at / Q::kScaleGroup;
    }
    OCTAVO_INLINE TokenWord word(int group, int i, int t) const {
        return splat_word(read<uint32_t>(q + group * kGroup + i * 4 + t * padded));
    }
    OCTAVO_INLINE float sum(int group, int half, int t) const {
        return sums[t * (padded / Q::kScaleGroup) + group * (kWhole ? 1 : 2) + half];
    }
    OCTAVO_INLINE FloatLanes scaled(IntLanes sum, int group, int t) const {
        return mul(to_float(sum), splat_lanes(scales[t * (padded / kGroup) + group]));
    }
    static constexpr int32_t kStart = 0;  // where sums begin
    // The same where the weights are lifted.
    template <int kTokens>
    OCTAVO_INLINE void starts(int group, int half, int32_t (&out)[kTokens]) const {
        for (int t = 0; t < kTokens; ++t)
            out[t] =
                -kLift<Q> * wholes[t * (padded / Q::kScaleGroup) + group * (kWhole ? 1 : 2) + half];
    }
    OCTAVO_INLINE void next_span() {
        q += kSpan;
        scales += kSpan / kGroup;
        sums += kScales;
        wholes += kScales;
    }
};

#if defined(OCTAVO_LEVEL_avx512)
// More of them, side by side.
template <class Q>
struct SideTokens {
    static constexpr bool kWhole = Q::kScaleGroup == kGroup;

    const SideGroup* groups;

    SideTokens(const QuantRows& x, int) : groups(x.side) {}
    OCTAVO_INLINE const uint32_t& word(int group, int i, int t) const {
        return groups[group].words[i][t];
    }
    OCTAVO_INLINE float sum(int group, int half, int t) const {
        return kWhole ? groups[group].sum32[t] : groups[group].sum16[half][t];
    }
    OCTAVO_INLINE FloatLanes scaled(IntLanes sum, int group, int t) const {
        return fma(bits_as_float(sum), splat_lanes(groups[group].scale[t]),
                   splat_lanes(groups[group].base[t]));
    }
    static constexpr int32_t kStart = kFloatBaseBits;
    template <int kTokens>
    OCTAVO_INLINE void starts(int group, int half, int32_t (&out)[kTokens]) const {
        const int32_t* whole = kWhole ? groups[group].whole32 : groups[group].whole16[half];
        for (int t = 0; t < kTokens; ++t) out[t] = kStart - kLift<Q> * whole[t];
    }
    OCTAVO_INLINE void next_span() { groups += kSpan / kGroup; }
};
#endif

// kPanelRows weight rows times kTokens tokens.
template <class Q, int kTokens, class Tokens>
struct LaneTile {
    static constexpr int kHalves = kGroup / Q::kScaleGroup;
    static constexpr int kWords = 8 / kHalves;
    static constexpr int kSpanBytes = kSpan / Q::kBlock * Q::kBytes;

    const uint8_t* span[kPanelRows];
    Tokens tokens;
    SpanScales<Q> scales;

    // One half of a group, or all of it. `word(i)` gives its words in turn.
    template <class Word>
    OCTAVO_INLINE void add_words(int group, int half, Word word, FloatLanes (&sums)[kTokens]) {
        const int at = group * kHalves + half;
        WordSums<most_of<Q>(), kWords> acc[kTokens];
        if constexpr (kLift<Q> == 0) {
            for (int t = 0; t < kTokens; ++t) acc[t].begin(splat_integer(Tokens::kStart));
        } else {
            alignas(32) int32_t starts[kTokens];
            tokens.starts(group, half, starts);
            for (int t = 0; t < kTokens; ++t) acc[t].begin(splat_integer(starts[t]));
        }
        for (int i = 0; i < kWords; ++i) {
            WeightLanes w = word(half * kWords + i);
            if constexpr (kFlipped<Q>) w = flip(w);
            for (int t = 0; t < kTokens; ++t)
                acc[t].add_word(i, w, tokens.word(group, half * kWords + i, t));
        }
        const FloatLanes scale = load_lanes(scales.scale[at]);
        for (int t = 0; t < kTokens; ++t)
            sums[t] = fma(tokens.scaled(acc[t].sum(), group, t), scale, sums[t]);
        if constexpr (kHasOffset<Q>) {
            const FloatLanes offset = load_lanes(scales.offset[at]);
            for (int t = 0; t < kTokens; ++t)
                sums[t] = fma(offset, splat_lanes(tokens.sum(group, half, t)), sums[t]);
        }
    }

    // The last groups of a row.
    OCTAVO_INLINE void add_rest(int n_groups, FloatLanes (&sums)[kTokens]) {
        scales.read(span, n_groups);
        each_group<Q>(span, n_groups, [&](auto group, auto word) {
            unrolled<kHalves>([&](auto half) { add_words(group, half, word, sums); });
        });
    }

    OCTAVO_INLINE void add_span(FloatLanes (&sums)[kTokens]) {
        scales.read(span, kSpan / kGroup);
        each_group_of_span<Q>(span, [&](auto group, auto word) {
            ask_ahead(group);
            unrolled<kHalves>([&](auto half) { add_words(group, half, word, sums); });
        });
        for (int r = 0; r < kPanelRows; ++r) span[r] += kSpanBytes;
        tokens.next_span();
    }

    // Asks for the memory of some rows, with each group for its share of them: a burst would wait
    // until the processor can note so many.
    OCTAVO_INLINE void ask_ahead(int group) {
        constexpr int kRows = kPanelRows / (kSpan / kGroup);
        const uint8_t* const* rows = span + group * kRows;
        for (int r = 0; r < kRows; ++r)
            for (int i = 0; i < kSpanBytes; i += 64) OCTAVO_PREFETCH(rows[r] + kPrefetchBytes + i);
    }
};

// The rows of a tile: `n` of them, kPanelRows at most, `step` apart.
struct TileRows {
    int first, step, n;

    int at(int i) const { return first + (i < n ? i : n - 1) * step; }
};

// y of one token. A whole tile is written without a question for each row.
OCTAVO_INLINE void put_sums(FloatLanes sums, const TileRows& rows, float* y) {
    alignas(64) float lanes[kPanelRows];
    store(lanes, sums);
    float* out = y + rows.first;
    if (rows.n == kPanelRows)
        for (int r = 0; r < kPanelRows; ++r) out[r * rows.step] = lanes[r];
    else
        for (int r = 0; r < rows.n; ++r) out[r * rows.step] = lanes[r];
}

// Those rows (missing ones repeat the last) times `n` tokens from t0 on, kTokens at most.
template <class Q, int kTokens, class Tokens>
inline void dot_tile(const BlockRows& w, const TileRows& rows, const QuantRows& x, int t0, int n,
                     float* y, int64_t y_stride) {
    LaneTile<Q, kTokens, Tokens> tile{{}, Tokens(x, t0), {}};
    FloatLanes sums[kTokens];
    for (int r = 0; r < kPanelRows; ++r) tile.span[r] = w.data + rows.at(r) * w.row_bytes;
    for (int t = 0; t < kTokens; ++t) sums[t] = splat_lanes(0.0f);
    for (int i = 0; i < w.n_columns / kSpan; ++i) tile.add_span(sums);
    if constexpr (Q::kBlock < kSpan) {
        if (const int n_groups = w.n_columns % kSpan / kGroup) tile.add_rest(n_groups, sums);
    }
    for (int t = 0; t < n; ++t) put_sums(sums[t], rows, y + (t0 + t) * y_stride);
}

// The weights of a tile are in the nearest cache when other tokens follow.
template <class Q>
void dot_rows(const BlockRows& w, const TileRows& rows, const QuantRows& x, int t0, int t1,
              float* y, int64_t y_stride) {
#if defined(OCTAVO_LEVEL_avx512)
    if (x.side && t0 == 0 && t1 == x.n_rows) {
        if (t1 <= 4) return dot_tile<Q, 4, SideTokens<Q>>(w, rows, x, 0, t1, y, y_stride);
        return dot_tile<Q, kSideRows, SideTokens<Q>>(w, rows, x, 0, t1, y, y_stride);
    }
#endif
    int t = t0;
    for (; t + 2 <= t1; t += 2) dot_tile<Q, 2, RowTokens<Q>>(w, rows, x, t, 2, y, y_stride);
    if (t < t1) dot_tile<Q, 1, RowTokens<Q>>(w, rows, x, t, 1, y, y_stride);
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

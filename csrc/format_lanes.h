// Dot products of three tokens and more on AVX-512: weight rows in the lanes of vectors. Every
// group of 32 columns is turned over once for all tokens; from then on a token costs half of what
// it costs in format.h. (Without 32 registers of 512 bits, turning over costs more than it saves.)
#pragma once

#include "format_groups.h"
#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kFewestLaneTokens = 3;

// acc[row] += four weights of the row times four values of a token.
OCTAVO_INLINE IntLanes dot_words(IntLanes acc, WeightLanes w, TokenWord x) {
    return {_mm512_dpbusd_epi32(acc.v, w.v, x.v)};
}

OCTAVO_INLINE __m512i join(B low, B high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low.v), high.v, 1);
}

// a[0..3], rows of words: word i of all rows in a[i], in each quarter of the vector.
OCTAVO_INLINE void turn_quarters(__m512i* a) {
    const __m512i p = _mm512_unpacklo_epi32(a[0], a[1]), q = _mm512_unpackhi_epi32(a[0], a[1]);
    const __m512i r = _mm512_unpacklo_epi32(a[2], a[3]), s = _mm512_unpackhi_epi32(a[2], a[3]);
    a[0] = _mm512_unpacklo_epi64(p, r);
    a[1] = _mm512_unpackhi_epi64(p, r);
    a[2] = _mm512_unpacklo_epi64(q, s);
    a[3] = _mm512_unpackhi_epi64(q, s);
}

// 32 bytes of each row -> 8 words of four, rows in the lanes. In registers: a vector that is read
// soon after it was written in two halves would wait for both to arrive in the cache.
OCTAVO_INLINE void turn_rows(const B rows[16], WeightLanes words[8]) {
    __m512i a[8];
    for (int i = 0; i < 4; ++i) {
        a[i] = join(rows[i], rows[i + 4]);
        a[i + 4] = join(rows[i + 8], rows[i + 12]);
    }
    turn_quarters(a);
    turn_quarters(a + 4);
    for (int i = 0; i < 4; ++i) {
        words[i] = {_mm512_shuffle_i32x4(a[i], a[i + 4], 0x88)};
        words[i + 4] = {_mm512_shuffle_i32x4(a[i], a[i + 4], 0xDD)};
    }
}

// The next tile is asked for at four places at once: memory is read faster so.
constexpr int kStreams = 4;
constexpr int kStreamRows = kPanelRows / kStreams;

// kPanelRows weight rows times kTokens tokens.
template <class Q, int kTokens>
struct LaneTile {
    static constexpr int kScales = kSpan / Q::kScaleGroup;
    static constexpr int kHalves = kGroup / Q::kScaleGroup;
    static constexpr int kSpanBytes = kSpan / Q::kBlock * Q::kBytes;

    const uint8_t* span[kPanelRows];
    const uint8_t* ahead[kStreams];  // memory of the next tile, asked for bit by bit
    const int8_t* q[kTokens];
    const float* x_scale[kTokens];
    const float* x_sum[kTokens];  // one for each scale
    FloatLanes sums[kTokens];
    alignas(64) float scale[kScales][kPanelRows];
    alignas(64) float offset[kScales][kPanelRows];

    OCTAVO_INLINE void look_at_headers(int n_groups) {
        alignas(64) float row_scale[kPanelRows][kScales], row_offset[kPanelRows][kScales];
        for (int r = 0; r < kPanelRows; ++r)
            read_scales<Q>(span[r], n_groups, row_scale[r], row_offset[r]);
        for (int i = 0; i < kScales; i += 8) {
            turn_over(row_scale, i, scale + i);
            if constexpr (kHasOffset<Q>) turn_over(row_offset, i, offset + i);
        }
        if constexpr (!kHasOffset<Q> && kLift<Q> != 0)
            for (int i = 0; i < kScales; ++i)
                store(offset[i], mul(load_lanes(scale[i]), splat_lanes(-kLift<Q>)));
    }

    OCTAVO_INLINE static void turn_over(const float (&rows)[kPanelRows][kScales], int column,
                                        float (*out)[kPanelRows]) {
        B in[kPanelRows];
        WeightLanes words[8];
        for (int r = 0; r < kPanelRows; ++r) in[r] = load_bytes(rows[r] + column);
        turn_rows(in, words);
        for (int i = 0; i < 8; ++i) _mm512_store_si512(out[i], words[i].v);
    }

    OCTAVO_INLINE void add_group(int group) {
        constexpr int kBytes = kStreamRows * kSpanBytes / 8;
        for (const uint8_t*& stream : ahead) {
            for (int i = 0; i < kBytes; i += 64) OCTAVO_PREFETCH(stream + i);
            stream += kBytes;
        }
        B values[kPanelRows];
        WeightLanes words[8];
        for (int r = 0; r < kPanelRows; ++r) {
            values[r] = group_values<Q>(span[r], group);
            if constexpr (kFlipped<Q>) values[r] = bits_xor(values[r], splat_byte(0x80));
        }
        turn_rows(values, words);
        for (int half = 0; half < kHalves; ++half) add_half(words, group, half);
    }

    OCTAVO_INLINE void add_half(const WeightLanes (&words)[8], int group, int half) {
        constexpr int kWords = 8 / kHalves;
        IntLanes acc[kTokens];
        for (int t = 0; t < kTokens; ++t) acc[t] = {_mm512_setzero_si512()};
        for (int i = 0; i < kWords; ++i) {
            const int word = half * kWords + i;
            for (int t = 0; t < kTokens; ++t)
                acc[t] = dot_words(acc[t], words[word],
                                   splat_word(read<uint32_t>(q[t] + group * kGroup + word * 4)));
        }
        const int at = group * kHalves + half;
        const FloatLanes s = load_lanes(scale[at]), o = load_lanes(offset[at]);
        for (int t = 0; t < kTokens; ++t) {
            const FloatLanes product = mul(s, splat_lanes(x_scale[t][group]));
            sums[t] = fma(to_float(acc[t]), product, sums[t]);
            if constexpr (kHasOffset<Q> || kLift<Q> != 0)
                sums[t] = fma(o, splat_lanes(x_sum[t][at]), sums[t]);
        }
    }

    OCTAVO_INLINE void add_span() {
        look_at_headers(kSpan / kGroup);
        // Written out, so that `values` sees constants on every compiler.
        add_group(0);
        add_group(1);
        add_group(2);
        add_group(3);
        add_group(4);
        add_group(5);
        add_group(6);
        add_group(7);
        for (int r = 0; r < kPanelRows; ++r) span[r] += kSpanBytes;
        for (int t = 0; t < kTokens; ++t) {
            q[t] += kSpan;
            x_scale[t] += kSpan / kGroup;
            x_sum[t] += kScales;
        }
    }
};

// Rows from `row` to below row1, kPanelRows at most; tokens from t0 to below t1, kTokens at most.
// Those that are not there repeat the last.
template <class Q, int kTokens>
inline void dot_lane_tile(const BlockRows& w, int row, int row1, const QuantRows& x, int t0, int t1,
                          float* y, int64_t y_stride) {
    LaneTile<Q, kTokens> tile;
    for (int r = 0; r < kPanelRows; ++r)
        tile.span[r] = w.data + (row + r < row1 ? row + r : row1 - 1) * w.row_bytes;
    for (int i = 0; i < kStreams; ++i)
        tile.ahead[i] = w.data + (row + kPanelRows + i * kStreamRows) * w.row_bytes;
    const float* sums = Q::kScaleGroup == kGroup ? x.sum32 : x.sum16;
    for (int t = 0; t < kTokens; ++t) {
        const int64_t at = static_cast<int64_t>(t0 + t < t1 ? t0 + t : t1 - 1) * x.padded;
        tile.q[t] = x.q + at;
        tile.x_scale[t] = x.scale + at / kGroup;
        tile.x_sum[t] = sums + at / Q::kScaleGroup;
        tile.sums[t] = splat_lanes(0.0f);
    }
    for (int i = 0; i < w.n_columns / kSpan; ++i) tile.add_span();
    if constexpr (Q::kBlock < kSpan) {
        if (const int n_groups = w.n_columns % kSpan / kGroup) {
            tile.look_at_headers(n_groups);
            for (int group = 0; group < n_groups; ++group) tile.add_group(group);
        }
    }
    for (int t = 0; t < t1 - t0; ++t) {
        float* out = y + (t0 + t) * y_stride + row;
        if (row1 - row >= kPanelRows)
            store(out, tile.sums[t]);
        else
            store_first(out, tile.sums[t], row1 - row);
    }
}

// FormatKernels::dot for kFewestLaneTokens and more.
template <class Q>
void dot_many(const BlockRows& w, int row0, int row1, const QuantRows& x, int t0, int t1, float* y,
              int64_t y_stride) {
    const int n_tokens = t1 - t0;
    auto* dot = n_tokens <= 4   ? dot_lane_tile<Q, 4>
                : n_tokens <= 6 ? dot_lane_tile<Q, 6>
                                : dot_lane_tile<Q, 8>;
    for (int row = row0; row < row1; row += kPanelRows) dot(w, row, row1, x, t0, t1, y, y_stride);
}

}  // namespace octavo::OCTAVO_LEVEL

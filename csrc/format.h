// The kernels of a block format, made from its header in quants/: dot products of up to
// kMaxColumns tokens, unpacking, and panels for matmul.
//
// A sum runs over the columns of its row in order, in int32 within 32 columns (or 16, where those
// share a scale) and in float over the groups; so it depends on its row and its token only.
#pragma once

#include "float_format.h"
#include "format_groups.h"
#include "kernels.h"
#include "panel.h"
#include "simd.h"
#if defined(OCTAVO_LEVEL_avx512)
#include "format_lanes.h"
#endif

namespace octavo::OCTAVO_LEVEL {

// kRows weight rows times kTokens tokens: what a step over a span needs.
template <class Q, int kRows, int kTokens>
struct Tile {
    static constexpr int kScales = kSpan / Q::kScaleGroup;

    const uint8_t* span[kRows];
    const int8_t* q[kTokens];
    const float* x_scale[kTokens];
    const float* x_sum[kTokens];  // one for each scale
    F8 sums[kRows][kTokens];
    using Scales = float[kRows][kTokens][kScales];
    Scales* scale;
    const Scales* broadcast;  // the same, by a pointer that the compiler cannot follow

    // Readies `scale` and adds what the offsets contribute.
    OCTAVO_INLINE void look_at_headers(int n_groups) {
        for (int r = 0; r < kRows; ++r) {
            alignas(64) float w_scale[kScales], w_offset[kScales];
            read_scales<Q>(span[r], n_groups, w_scale, w_offset);
            for (int i = 0; i < kScales; i += 8) {
                const F8 s = load8(w_scale + i);
                for (int t = 0; t < kTokens; ++t) {
                    const F8 x = Q::kScaleGroup == kGroup ? load8(x_scale[t] + i)
                                                          : load_4_twice(x_scale[t] + i / 2);
                    store((*scale)[r][t] + i, mul(s, x));
                    if constexpr (kHasOffset<Q>)
                        sums[r][t] = fma(load8(w_offset + i), load8(x_sum[t] + i), sums[r][t]);
                }
            }
        }
    }

    OCTAVO_INLINE void add_group(int group) {
        B x[kTokens];
        I start[kTokens];
        for (int t = 0; t < kTokens; ++t) {
            x[t] = load_bytes(q[t] + group * kGroup);
            start[t] = zero_integers();
            if constexpr (kLift<Q> != 0)
                start[t] = sub(start[t], dot_unsigned(start[t], splat_byte(kLift<Q>), x[t]));
        }
        for (int r = 0; r < kRows; ++r) {
            B w = group_values<Q>(span[r], group);
            if constexpr (kFlipped<Q>) w = bits_xor(w, splat_byte(0x80));
            for (int t = 0; t < kTokens; ++t) {
                const I dot = Q::kSigned && !kFlipped<Q> ? dot_signed(start[t], w, x[t])
                                                         : dot_unsigned(start[t], w, x[t]);
                const F8 s = Q::kScaleGroup == kGroup ? splat8((*broadcast)[r][t][group])
                                                      : splat_pair((*broadcast)[r][t] + 2 * group);
                sums[r][t] = fma(to_float(dot), s, sums[r][t]);
            }
        }
    }

    OCTAVO_INLINE static void prefetch_span(const uint8_t* p) {
        for (int i = 0; i < kSpan / Q::kBlock * Q::kBytes; i += 64) OCTAVO_PREFETCH(p + i);
    }

    OCTAVO_INLINE void add_span() {
        for (int r = 0; r < kRows; ++r) prefetch_span(span[r] + kPrefetchBytes);
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
        for (int r = 0; r < kRows; ++r) span[r] += kSpan / Q::kBlock * Q::kBytes;
        for (int t = 0; t < kTokens; ++t) {
            q[t] += kSpan;
            x_scale[t] += kSpan / kGroup;
            x_sum[t] += kScales;
        }
    }
};

template <class Q, int kRows, int kTokens>
inline void dot_tile(const BlockRows& w, int row, int row_step, const QuantRows& x, int token,
                     float* y, int64_t y_stride) {
    Tile<Q, kRows, kTokens> tile;
    alignas(64) typename Tile<Q, kRows, kTokens>::Scales scales;
    // Broadcasting from memory is free; a compiler that knows what lies there makes two shuffles of
    // it instead, a third of the whole work.
    const typename Tile<Q, kRows, kTokens>::Scales* volatile hidden = &scales;
    tile.scale = &scales;
    tile.broadcast = hidden;
    for (int r = 0; r < kRows; ++r) tile.span[r] = w.data + (row + r * row_step) * w.row_bytes;
    const float* sums = Q::kScaleGroup == kGroup ? x.sum32 : x.sum16;
    for (int t = 0; t < kTokens; ++t) {
        const int64_t at = static_cast<int64_t>(token + t) * x.padded;
        tile.q[t] = x.q + at;
        tile.x_scale[t] = x.scale + at / kGroup;
        tile.x_sum[t] = sums + at / Q::kScaleGroup;
    }
    for (int r = 0; r < kRows; ++r)
        for (int t = 0; t < kTokens; ++t) tile.sums[r][t] = zero8();
    for (int i = 0; i < w.n_columns / kSpan; ++i) tile.add_span();
    if constexpr (Q::kBlock < kSpan) {
        if (const int n_groups = w.n_columns % kSpan / kGroup) {
            tile.look_at_headers(n_groups);
            for (int group = 0; group < n_groups; ++group) tile.add_group(group);
        }
    }
    for (int r = 0; r < kRows; ++r)
        for (int t = 0; t < kTokens; ++t) y[t * y_stride + r * row_step] = sum(tile.sums[r][t]);
}

template <class Q, int kRows>
inline void dot_tokens(const BlockRows& w, int row, int row_step, const QuantRows& x, int t0,
                       int t1, float* y, int64_t y_stride) {
    int t = t0;
    for (; t + 4 <= t1; t += 4)
        dot_tile<Q, kRows, 4>(w, row, row_step, x, t, y + t * y_stride + row, y_stride);
    for (; t + 2 <= t1; t += 2)
        dot_tile<Q, kRows, 2>(w, row, row_step, x, t, y + t * y_stride + row, y_stride);
    if (t < t1) dot_tile<Q, kRows, 1>(w, row, row_step, x, t, y + t * y_stride + row, y_stride);
}

// FormatKernels::dot. The rows are read as four streams, each a quarter of them: memory is a half
// faster when it is asked for several pages at once.
template <class Q>
void dot(const BlockRows& w, int row0, int row1, const QuantRows& x, int t0, int t1, float* y,
         int64_t y_stride) {
#if defined(OCTAVO_LEVEL_avx512)
    if (t1 - t0 >= kFewestLaneTokens) return dot_many<Q>(w, row0, row1, x, t0, t1, y, y_stride);
#endif
    const int quarter = (row1 - row0) / 4;
    for (int i = 0; i < quarter; ++i)
        dot_tokens<Q, 4>(w, row0 + i, quarter, x, t0, t1, y, y_stride);
    for (int row = row0 + 4 * quarter; row < row1; ++row)
        dot_tokens<Q, 1>(w, row, 0, x, t0, t1, y, y_stride);
}

// FormatKernels::unpack: rounded as the format defines it.
template <class Q>
void unpack(const uint8_t* row, int n_columns, float* out) {
    constexpr int kBlockScales = Q::kBlock / Q::kScaleGroup;
    constexpr float kZero = static_cast<float>(zero_of<Q>());
    for (; n_columns > 0; n_columns -= Q::kBlock, row += Q::kBytes) {
        float scale[kBlockScales], offset[kBlockScales];
        Q::scales(row, scale, offset);
        for (int group = 0; group < Q::kBlock / kGroup; ++group) {
            alignas(32) uint8_t values[kGroup];
            store(values, Q::values(row, group));
            for (int i = 0; i < kGroup; i += 8, out += 8) {
                const int at = (group * kGroup + i) / Q::kScaleGroup;
                F8 w = Q::kSigned ? load8_int8(reinterpret_cast<int8_t*>(values) + i)
                                  : load8_uint8(values + i);
                if constexpr (zero_of<Q>() != 0) w = sub(w, splat8(kZero));
                w = mul(w, splat8(scale[at]));
                if constexpr (Q::kOffset && zero_of<Q>() == 0) w = add(w, splat8(offset[at]));
                store(out, w);
            }
        }
    }
}

template <class Q>
constexpr FormatKernels format_kernels(const char* name) {
    if constexpr (Q::kBlock == 1)
        return {
            name,          1, Q::kBytes, true, 0, false, nullptr, dot_floats<Q>, unpack_floats<Q>,
            pack_floats<Q>};
    else
        return {name,   Q::kBlock, Q::kBytes, false,        Q::kScaleGroup, kPanelOffset<Q>,
                dot<Q>, nullptr,   unpack<Q>, pack_panel<Q>};
}

}  // namespace octavo::OCTAVO_LEVEL

// The table of the format whose struct is `stem`.
#define OCTAVO_FORMAT(stem)                                              \
    namespace octavo::OCTAVO_LEVEL {                                     \
    extern const FormatKernels format_##stem;                            \
    constexpr FormatKernels format_##stem = format_kernels<stem>(#stem); \
    }

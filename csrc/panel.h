// Panels: weight rows unpacked for matmul, so that one vector holds the same columns of all rows.
#pragma once

#include "format_groups.h"

namespace octavo::OCTAVO_LEVEL {

// 32 columns of kPanelRows rows. kHalves is 2 for formats with a scale every 16 weights.
// w = scale * value + offset, but for formats with a zero where kFlip is 0: their values lie above
// the weights by it, and the tokens' sums take it off.
template <int kHalves>
struct PanelGroup {
    int8_t values[8][kPanelRows][4];     // [column / 4][row][column % 4]
    int32_t start[kHalves][kPanelRows];  // where the integer sums begin, if kFlip is not 0
    float scale[kHalves][kPanelRows];
    float offset[kHalves][kPanelRows];
};

// Writes 8 words of kPanelRows rows to a group of a panel.
template <class Format, class Word>
OCTAVO_INLINE void put_words(PanelGroup<32 / Format::kScaleGroup>& out, Word word) {
    constexpr int kHalves = 32 / Format::kScaleGroup, kWords = 8 / kHalves;
    for (int half = 0; half < kHalves; ++half) {
        PanelSums<0, kWords> flipped;
        flipped.begin(splat_integer(0));
        for (int i = half * kWords; i < (half + 1) * kWords; ++i) {
            WeightLanes w = word(i);
            if constexpr (kFlip != 0) {
                if constexpr (zero_of<Format>() != 0) w = minus(w, zero_of<Format>());
                flipped.add_word(i, w, splat_word(kFlip * 0x01010101u));
            }
            store(out.values[i][0], w);
        }
        if constexpr (kFlip != 0) store(out.start[half], minus(splat_integer(0), flipped.sum()));
    }
}

// Unpacks `n_groups` (at most 8) groups of 32 columns of the rows whose first blocks are at
// `rows[i]`.
template <class Format>
void pack_span(const uint8_t* const rows[kPanelRows], int n_groups,
               PanelGroup<32 / Format::kScaleGroup>* groups) {
    constexpr int kHalves = 32 / Format::kScaleGroup;
    SpanScales<Format> scales;
    scales.read(rows, n_groups);
    for (int group = 0; group < n_groups; ++group)
        for (int half = 0; half < kHalves; ++half) {
            const int at = group * kHalves + half;
            store(groups[group].scale[half], load_lanes(scales.scale[at]));
            if constexpr (kHasOffset<Format>)
                store(groups[group].offset[half], load_lanes(scales.offset[at]));
        }
    each_group<Format>(rows, n_groups,
                       [&](int group, auto word) { put_words<Format>(groups[group], word); });
}

// FormatKernels::pack_panel of an integer format. Rows behind the last repeat it.
template <class Format>
void pack_panel(const BlockRows& w, int row0, int column0, int n_columns, void* panel) {
    auto* groups = static_cast<PanelGroup<32 / Format::kScaleGroup>*>(panel);
    const int n_groups = n_columns / 32;
    for (int group = 0; group < n_groups; group += 8) {
        const size_t at =
            static_cast<size_t>(column0 + group * 32) / Format::kBlock * Format::kBytes;
        const uint8_t* rows[kPanelRows];
        for (int i = 0; i < kPanelRows; ++i) {
            const int row = row0 + i < w.n_rows ? row0 + i : w.n_rows - 1;
            rows[i] = w.data + row * w.row_bytes + at;
        }
        pack_span<Format>(rows, n_groups - group < 8 ? n_groups - group : 8, groups + group);
    }
}

}  // namespace octavo::OCTAVO_LEVEL

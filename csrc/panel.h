// Panels: weight rows unpacked for matmul, so that one vector holds the same columns of all rows.
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace octavo::OCTAVO_LEVEL {

// 32 columns of kPanelRows rows. kHalves is 2 for formats with a scale every 16 weights.
// w = scale * value + offset.
template <int kHalves>
struct PanelGroup {
    int8_t values[8][kPanelRows][4];     // [column / 4][row][column % 4]
    int32_t start[kHalves][kPanelRows];  // where the integer sums begin: see kFlip
    float scale[kHalves][kPanelRows];
    float offset[kHalves][kPanelRows];
};

// Formats whose offsets are all -scale * kZero become signed values without offsets in a panel.
template <class Format>
constexpr int panel_zero() {
    if constexpr (requires { Format::kZero; }) return Format::kZero;
    return 0;
}
template <class Format>
constexpr bool kPanelOffset = Format::kOffset && panel_zero<Format>() == 0;

constexpr int kFloatPanelColumns = 32;  // a float panel is [column][row], in groups of this many

// Turns 8 rows of 8 words into 8 columns of 8 words; in[i] at in + i * 32 bytes.
#if defined(OCTAVO_LEVEL_avx512) || defined(OCTAVO_LEVEL_avx2) || defined(OCTAVO_LEVEL_avx_vnni)

OCTAVO_INLINE void transpose_words(const B in[8], void* out, size_t out_stride) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(in[i].v, in[i + 1].v);
        a[i + 1] = _mm256_unpackhi_epi32(in[i].v, in[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        auto* p = static_cast<char*>(out);
        store(p + i * out_stride, B{_mm256_permute2x128_si256(b[i], b[i + 4], 0x20)});
        store(p + (i + 4) * out_stride, B{_mm256_permute2x128_si256(b[i], b[i + 4], 0x31)});
    }
}

#else

inline void transpose_words(const B in[8], void* out, size_t out_stride) {
    uint32_t words[8][8];
    for (int i = 0; i < 8; ++i) store(words[i], in[i]);
    for (int column = 0; column < 8; ++column) {
        uint32_t rows[8];
        for (int i = 0; i < 8; ++i) rows[i] = words[i][column];
        std::memcpy(static_cast<char*>(out) + column * out_stride, rows, sizeof rows);
    }
}

#endif

// Unpacks `n_groups` (at most 8) groups of 32 columns of 8 rows. `rows[i]` is row i at the span's
// first block, nullptr for a row behind the weight's end.
template <class Format>
void pack_span(const uint8_t* const rows[8], int n_groups, int first_row,
               PanelGroup<32 / Format::kScaleGroup>* groups) {
    constexpr int kHalves = 32 / Format::kScaleGroup;
    constexpr int kScales = 8 * kHalves;
    constexpr int kBlockScales = Format::kBlock / Format::kScaleGroup;
    constexpr int kBlockGroups = Format::kBlock / 32;
    alignas(64) float scales[8][kScales] = {};
    alignas(64) float offsets[8][kScales] = {};
    for (int row = 0; row < 8; ++row) {
        if (!rows[row]) continue;
        for (int at = 0; at < n_groups; at += kBlockGroups)
            Format::scales(rows[row] + at / kBlockGroups * Format::kBytes,
                           scales[row] + at / kBlockGroups * kBlockScales,
                           offsets[row] + at / kBlockGroups * kBlockScales);
    }
    for (int group = 0; group < n_groups; ++group) {
        PanelGroup<kHalves>& out = groups[group];
        B values[8];
        for (int row = 0; row < 8; ++row) {
            values[row] = splat_byte(0);
            if (!rows[row]) continue;
            const uint8_t* block = rows[row] + group / kBlockGroups * Format::kBytes;
            values[row] = Format::values(block, group % kBlockGroups);
            if constexpr (panel_zero<Format>() != 0)
                values[row] = sub(values[row], splat_byte(panel_zero<Format>()));
        }
        transpose_words(values, out.values[0][first_row], sizeof out.values[0]);
        for (int half = 0; half < kHalves; ++half) {
            I sums = zero_integers();
            if constexpr (kFlip != 0)
                for (int i = 0; i < 8 / kHalves; ++i)
                    sums =
                        dot_unsigned(sums, splat_byte(kFlip),
                                     load_bytes(out.values[half * (8 / kHalves) + i][first_row]));
            int32_t flipped[8];
            store(flipped, sums);
            for (int row = 0; row < 8; ++row) {
                out.start[half][first_row + row] = -flipped[row];
                out.scale[half][first_row + row] = scales[row][group * kHalves + half];
                out.offset[half][first_row + row] = offsets[row][group * kHalves + half];
            }
        }
    }
}

// FormatKernels::pack_panel of an integer format.
template <class Format>
void pack_panel(const BlockRows& w, int row0, int column0, int n_columns, void* panel) {
    constexpr int kHalves = 32 / Format::kScaleGroup;
    auto* groups = static_cast<PanelGroup<kHalves>*>(panel);
    const int n_groups = n_columns / 32;
    for (int first = 0; first < kPanelRows; first += 8) {
        for (int group = 0; group < n_groups; group += 8) {
            const size_t at =
                static_cast<size_t>(column0 + group * 32) / Format::kBlock * Format::kBytes;
            const uint8_t* rows[8];
            for (int i = 0; i < 8; ++i) {
                const int row = row0 + first + i;
                rows[i] = row < w.n_rows ? w.data + row * w.row_bytes + at : nullptr;
            }
            const int n = n_groups - group < 8 ? n_groups - group : 8;
            pack_span<Format>(rows, n, first, groups + group);
        }
    }
}

// The same of a float format: `unpack` gives the floats of a row from a block's start on.
inline void pack_float_panel(void (*unpack)(const uint8_t*, int, float*), int bytes_per_weight,
                             const BlockRows& w, int row0, int column0, int n_columns,
                             void* panel) {
    auto* out = static_cast<float*>(panel);
    float values[kFloatPanelColumns];
    for (int column = 0; column < n_columns; column += kFloatPanelColumns) {
        const int n =
            n_columns - column < kFloatPanelColumns ? n_columns - column : kFloatPanelColumns;
        for (int row = 0; row < kPanelRows; ++row) {
            const bool exists = row0 + row < w.n_rows;
            if (exists)
                unpack(w.data + (row0 + row) * w.row_bytes +
                           static_cast<size_t>(column0 + column) * bytes_per_weight,
                       n, values);
            for (int i = 0; i < n; ++i)
                out[(column + i) * kPanelRows + row] = exists ? values[i] : 0.0f;
        }
    }
}

}  // namespace octavo::OCTAVO_LEVEL

// Attention in integers, four products an instruction as for weights: scores of int8 keys with
// queries rounded to int8, sums of int8 values with weights rounded to 14 bits. Keys lie
// [dims / 4][64][4] and values [64 / 4][dims][4]; scales are shared by 32 dims of a position.
#pragma once

#include "attend.h"
#include "lanes.h"
#include "row_tiles.h"
#include "rows.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kDotVectors = kPanelRows == 16 ? 2 : 1;
#if defined(OCTAVO_LEVEL_baseline)
constexpr int kDotRows = 2;
#else
constexpr int kDotRows = 4;
#endif
constexpr int kDotWords = kGroup / 4;  // of four dims, in a scale group
// Steps of the inner loops that stand in a row without a branch: GCC 12 copies every sum of an
// integer dot product once a round.
constexpr int kUnrolled = 4;

// Calls `fetch` for so many bytes that are read.
template <int kBytes>
OCTAVO_INLINE void fetch_rows(Ahead* ahead) {
    if (!ahead) return;
    for (int i = 0; i < kBytes; i += Ahead::kStepBytes) fetch(ahead);
}

// The dot instruction may need an unsigned side: keys are flipped, which adds 128 to each, and sums
// begin with what takes that off again.
#if defined(OCTAVO_LEVEL_avx512)
OCTAVO_INLINE TokenWord load_keys(const int8_t* p) {
    return {_mm512_xor_si512(load_weights(p).v, _mm512_set1_epi8(static_cast<char>(kFlip)))};
}
OCTAVO_INLINE WeightLanes splat_query(uint32_t word) {
    return {splat_word(word).v};
}
OCTAVO_INLINE IntLanes begin_at(int32_t start) {
    return {_mm512_set1_epi32(start)};
}
#else
OCTAVO_INLINE TokenWord load_keys(const int8_t* p) {
    return kFlip ? bits_xor(load_bytes(p), splat_byte(kFlip)) : load_bytes(p);
}
OCTAVO_INLINE WeightLanes splat_query(uint32_t word) {
    return splat_word(word);
}
#if defined(OCTAVO_LEVEL_avx_vnni)
OCTAVO_INLINE IntLanes begin_at(int32_t start) {
    return {_mm256_set1_epi32(start)};
}
#else
OCTAVO_INLINE IntLanes begin_at(int32_t) {
    return zero_integers();
}
#endif
#endif

// Queries as the kernels read them, in tiles of rows. A tile of h rows has entries of four bytes:
// int8 in words of four [words][h], then scales [groups][h], then where the integer sums begin
// [groups][h]. A row's last group is filled up with zeros.
struct DotQueries {
    int dim;
    RowTiles tiles;

    DotQueries(int dim, int n_rows) : dim(dim), tiles(n_rows, kDotRows) {}

    int n_groups() const { return (dim + kGroup - 1) / kGroup; }
    int n_words() const { return n_groups() * kDotWords; }
    int n_entries() const { return n_words() + 2 * n_groups(); }  // of a row
    size_t bytes() const { return sizeof(uint32_t) * n_entries() * tiles.n_rows; }
    uint8_t* tile(uint8_t* memory, int t) const {
        return memory + sizeof(uint32_t) * n_entries() * tiles.begin(t);
    }

    void set_group(uint8_t* memory, int t, int row, int group, float scale,
                   const int8_t (&numbers)[kGroup]) const {
        const int height = tiles.height(t);
        int32_t start = 0;
        for (int i = 0; i < kGroup; ++i) start -= kFlip * numbers[i];
        const auto put = [&](int entry, const void* value) {
            std::memcpy(tile(memory, t) + sizeof(uint32_t) * (entry * height + row), value,
                        sizeof(uint32_t));
        };
        for (int w = 0; w < kDotWords; ++w) put(group * kDotWords + w, numbers + 4 * w);
        put(n_words() + group, &scale);
        put(n_words() + n_groups() + group, &start);
    }
};

// scores = sum over groups of key scale * query scale * integer sum, for a strip of positions.
struct DotTile {
    const int8_t* keys;       // of the first group, at the strip's first position
    int64_t group_bytes;      // from a group's keys to those of the next
    const float* key_scales;  // (groups, 64), at that position
    int dim;
    const uint32_t* words;
    const float* scales;
    const int32_t* starts;
    float* scores;
    Ahead* ahead;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        FloatLanes totals[kRows][kDotVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kDotVectors; ++v) totals[r][v] = splat_lanes(0);
        for (int g = 0; g * kGroup < dim; ++g) {
            IntLanes sums[kRows][kDotVectors];
            add_group(g, sums);
            for (int v = 0; v < kDotVectors; ++v) {
                const FloatLanes k = load_lanes(key_scales + g * kPageTokens + v * kPanelRows);
                for (int r = 0; r < kRows; ++r) {
                    const FloatLanes q = splat_lanes(scales[g * kRows + r]);
                    totals[r][v] = fma(mul(k, q), to_float(sums[r][v]), totals[r][v]);
                }
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kDotVectors; ++v)
                store(scores + r * kPageTokens + v * kPanelRows, totals[r][v]);
    }

    template <int kRows>
    OCTAVO_INLINE void add_group(int g, IntLanes (&sums)[kRows][kDotVectors]) const {
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kDotVectors; ++v) sums[r][v] = begin_at(starts[g * kRows + r]);
        const int8_t* key = keys + g * group_bytes;
        const uint32_t* word = words + g * kDotWords * kRows;
        if (dim - g * kGroup >= kGroup) {
            add_words<kUnrolled>(key, word, sums);
            add_words<kUnrolled>(key + kUnrolled * 4 * kPageTokens, word + kUnrolled * kRows, sums);
            return;
        }
        for (int i = g * kGroup; i < dim; i += 4, key += 4 * kPageTokens, word += kRows)
            add_words<1>(key, word, sums);
    }

    template <int kWords, int kRows>
    OCTAVO_INLINE void add_words(const int8_t* key, const uint32_t* word,
                                 IntLanes (&sums)[kRows][kDotVectors]) const {
        fetch_rows<kWords * kDotVectors * kPanelRows * 4>(ahead);
        for (int w = 0; w < kWords; ++w, key += 4 * kPageTokens, word += kRows) {
            TokenWord k[kDotVectors];
            for (int v = 0; v < kDotVectors; ++v) k[v] = load_keys(key + v * kPanelRows * 4);
            for (int r = 0; r < kRows; ++r) {
                const WeightLanes q = splat_query(word[r]);
                for (int v = 0; v < kDotVectors; ++v) sums[r][v] = dot_lanes(sums[r][v], q, k[v]);
            }
        }
    }
};
static_assert(kDotWords == 2 * kUnrolled);

// CacheKernels::score, tile by tile, strip by strip. `key_scales`: floats (groups, 64).
inline void score_dots(const int8_t* keys, int64_t group_bytes, const float* key_scales,
                       const DotQueries& queries, const uint8_t* memory, int from, int to,
                       float* scores, Ahead* ahead) {
    const RowTiles& tiles = queries.tiles;
    const int end = tiles.holding(to - 1) + 1;
    for (int t = tiles.holding(from); t < end; ++t, ahead = nullptr) {
        const int height = tiles.height(t), row = tiles.begin(t);
        const auto* words = reinterpret_cast<const uint32_t*>(memory) + queries.n_entries() * row;
        const auto* scales = reinterpret_cast<const float*>(words + queries.n_words() * height);
        const auto* starts = reinterpret_cast<const int32_t*>(scales + queries.n_groups() * height);
        for (int p = 0; p < kPageTokens; p += kDotVectors * kPanelRows) {
            const DotTile tile{
                keys + p * 4, group_bytes, key_scales + p, queries.dim,
                words,        scales,      starts,         scores + row * kPageTokens + p,
                ahead};
            with_rows<kDotRows>(height, tile);
        }
    }
}

// A row of 64 weights in two parts of seven bits, both unsigned: the dot instruction takes no more
// at some levels. weight = factor * (128 * high + low) / scale.
constexpr int kFours = kPageTokens / 4;
struct DotWeights {
    uint32_t high[kFours];  // four positions each
    uint32_t low[kFours];
};
constexpr float kMostWeight = 128 * 128 - 1;

// Rounds weights * scales, which are 0..kMostWeight.
#if defined(OCTAVO_LEVEL_avx512)
inline void split_weights(const float* weights, const float* scales, DotWeights& out) {
    __m512i whole[4];
    for (int i = 0; i < 4; ++i)
        whole[i] = _mm512_cvtps_epi32(mul(load(weights + i * 16), load(scales + i * 16)).v);
    // Packing leaves fours of positions in another order: 0, 4, 8, 12, 1, 5, ...
    const __m512i first = _mm512_packs_epi32(whole[0], whole[1]);
    const __m512i second = _mm512_packs_epi32(whole[2], whole[3]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i high =
        _mm512_packus_epi16(_mm512_srli_epi16(first, 7), _mm512_srli_epi16(second, 7));
    const __m512i seven = _mm512_set1_epi16(127);
    const __m512i low =
        _mm512_packus_epi16(_mm512_and_si512(first, seven), _mm512_and_si512(second, seven));
    _mm512_storeu_si512(out.high, _mm512_permutexvar_epi32(order, high));
    _mm512_storeu_si512(out.low, _mm512_permutexvar_epi32(order, low));
}
#else
inline void split_weights(const float* weights, const float* scales, DotWeights& out) {
    auto* high = reinterpret_cast<int8_t*>(out.high);
    auto* low = reinterpret_cast<int8_t*>(out.low);
    for (int i = 0; i < kPageTokens; i += kLanes) {
        const F whole = round_even(mul(load(weights + i), load(scales + i)));
        // The whole number below whole / 128.
        const F part = round_even(fma(whole, splat(1.0f / 128), splat(-63.5f / 128)));
        store_int8(high + i, part);
        store_int8(low + i, fma(part, splat(-128.0f), whole));
    }
}
#endif

// Four positions of a row's weights times those of some dims.
#if defined(OCTAVO_LEVEL_avx512)
OCTAVO_INLINE IntLanes dot_values(IntLanes acc, uint32_t weights, WeightLanes values) {
    return dot_lanes(acc, values, splat_word(weights));
}
#else
OCTAVO_INLINE IntLanes dot_values(IntLanes acc, uint32_t weights, WeightLanes values) {
    return dot_unsigned(acc, splat_word(weights), values);
}
#endif

// sums += weights x values for some vectors of dims.
template <int kVectors>
struct DotMixTile {
    const int8_t* values;     // of the first four positions, at the first dim
    int64_t step;             // to the next four
    int n_positions;          // rounded up to kUnrolled fours: weights behind are zero
    const uint32_t* weights;  // DotWeights, a row each
    const float* factors;     // a row each
    float* sums;
    int64_t sums_stride;
    Ahead* ahead;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        IntLanes high[kRows][kVectors], low[kRows][kVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v) high[r][v] = low[r][v] = begin_at(0);
        const int8_t* value = values;
        for (int i = 0; i * 4 < n_positions; i += kUnrolled) {
            fetch_rows<kUnrolled * kVectors * kPanelRows * 4>(ahead);
            for (int j = i; j < i + kUnrolled; ++j, value += step) {
                WeightLanes x[kVectors];
                for (int v = 0; v < kVectors; ++v) x[v] = load_weights(value + v * kPanelRows * 4);
                for (int r = 0; r < kRows; ++r) {
                    const uint32_t* w = weights + r * 2 * kFours + j;
                    for (int v = 0; v < kVectors; ++v) {
                        high[r][v] = dot_values(high[r][v], w[0], x[v]);
                        low[r][v] = dot_values(low[r][v], w[kFours], x[v]);
                    }
                }
            }
        }
        for (int r = 0; r < kRows; ++r) {
            for (int v = 0; v < kVectors; ++v) {
                const FloatLanes sum =
                    fma(to_float(high[r][v]), splat_lanes(128.0f), to_float(low[r][v]));
                float* out = sums + r * sums_stride + v * kPanelRows;
                store(out, fma(sum, splat_lanes(factors[r]), load_lanes(out)));
            }
        }
    }
};

// CacheKernels::mix: for some rows at a time, scale group by scale group.
class DotMix {
  public:
    // `values`: [16][padded dims][4]; `scales`: halves [groups][64]; `memory`: groups * 64 floats.
    DotMix(const int8_t* values, const uint16_t* scales, int dim, int n_positions, float* memory)
        : values_(values), padded_(round_up(dim, 16)), n_positions_(n_positions), scales_(memory) {
        for (float& largest : largest_) largest = 0;
        for (int g = 0; g * kGroup < dim; ++g, scales += kPageTokens) {
            uint16_t halves[kPageTokens] = {};  // what was never written may be anything
            std::memcpy(halves, scales, n_positions * sizeof *halves);
            for (int p = 0; p < kPageTokens; p += kLanes) {
                const F scale = load_half(halves + p);
                store(scales_ + g * kPageTokens + p, scale);
                store(largest_ + p, max(load(largest_ + p), scale));
            }
        }
    }

    void run(const float* weights, int n_rows, float* sums, int64_t sums_stride,
             Ahead* ahead) const {
        const RowTiles tiles(n_rows, kDotRows);
        for (int t = 0; t < tiles.n_tiles; ++t, ahead = nullptr) {
            const int row = tiles.begin(t);
            add_rows(weights + row * kPageTokens, tiles.height(t), sums + row * sums_stride,
                     sums_stride, ahead);
        }
    }

  private:
    void add_rows(const float* weights, int count, float* sums, int64_t sums_stride,
                  Ahead* ahead) const {
        alignas(64) float scaled[kDotRows][kPageTokens];
        float factors[kDotRows];
        for (int r = 0; r < count; ++r)
            factors[r] = scale_row(weights + r * kPageTokens, scaled[r]);
        for (int i = 0; i < padded_; i += kGroup) {
            alignas(64) DotWeights parts[kDotRows];
            for (int r = 0; r < count; ++r)
                split_weights(scaled[r], scales_ + i / kGroup * kPageTokens, parts[r]);
            const int end = padded_ - i < kGroup ? padded_ : i + kGroup;
            int at = i;
            for (; at + kDotVectors * kPanelRows <= end; at += kDotVectors * kPanelRows)
                with_rows<kDotRows>(
                    count, tile<kDotVectors>(at, parts, factors, sums + at, sums_stride, ahead));
            for (; at < end; at += kPanelRows)
                with_rows<kDotRows>(count,
                                    tile<1>(at, parts, factors, sums + at, sums_stride, ahead));
        }
    }

    // Scales a row so that weight * scale is kMostWeight at most; returns what to multiply by.
    float scale_row(const float* weights, float* out) const {
        F most = zero();
        for (int p = 0; p < kPageTokens; p += kLanes)
            most = max(most, mul(load(weights + p), load(largest_ + p)));
        const float peak = largest(most);
        const F factor = splat(peak > 0 ? kMostWeight / peak : 0);
        for (int p = 0; p < kPageTokens; p += kLanes)
            store(out + p, mul(load(weights + p), factor));
        return peak / kMostWeight;
    }

    template <int kVectors>
    DotMixTile<kVectors> tile(int dim, const DotWeights* parts, const float* factors, float* sums,
                              int64_t sums_stride, Ahead* ahead) const {
        return {values_ + dim * 4, padded_ * 4, n_positions_, parts->high,
                factors,           sums,        sums_stride,  ahead};
    }

    const int8_t* values_;
    int padded_, n_positions_;
    float* scales_;
    alignas(64) float largest_[kPageTokens];
};

}  // namespace octavo::OCTAVO_LEVEL

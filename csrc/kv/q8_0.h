// int8 with a half-precision scale for every 32 dims of a position.
//
// Key block, for each group of 32 dims (the last may be shorter): scales [64], then numbers
// [dims of the group / 4][64][4], filled up with zeros. Value block: scales [groups][64], then
// numbers [64 / 4][dims up to a multiple of 16][4 positions].
#pragma once

#include "attend.h"
#include "dot_tiles.h"

namespace octavo::OCTAVO_LEVEL::kv_q8_0 {

constexpr int kScaleBytes = kPageTokens * 2;  // of one group
constexpr int kGroupBytes = kScaleBytes + kGroup * kPageTokens;

struct Format {
    static int n_groups(int dim) { return (dim + kGroup - 1) / kGroup; }
    static size_t key_bytes(int dim) {
        return static_cast<size_t>(n_groups(dim)) * kScaleBytes +
               static_cast<size_t>(round_up(dim, 4)) * kPageTokens;
    }
    static size_t value_bytes(int dim) {
        return static_cast<size_t>(n_groups(dim)) * kScaleBytes +
               static_cast<size_t>(round_up(dim, 16)) * kPageTokens;
    }

    // 32 dims, of which n are there; zeros follow.
    struct Group {
        F parts[kGroup / kLanes];

        Group(const float* x, int n) {
            for (int i = 0; i < kGroup; i += kLanes)
                parts[i / kLanes] = n > i ? load_at_most(x + i, n - i) : zero();
        }
        float largest_magnitude() const {
            F most = abs(parts[0]);
            for (const F& part : parts) most = max(most, abs(part));
            return largest(most);
        }
        // numbers = x * inverse, rounded.
        void round(float inverse, int8_t* numbers) const {
            for (int i = 0; i < kGroup; i += kLanes) {
                const F scaled = mul(parts[i / kLanes], splat(inverse));
                store_int8(numbers + i, min(max(scaled, splat(-127.0f)), splat(127.0f)));
            }
        }
    };

    // Rounds n dims, behind which zeros follow up to 32; returns the scale.
    static uint16_t quantise(const float* x, int n, int8_t (&numbers)[kGroup]) {
        const Group group(x, n);
        const uint16_t scale = float_to_half(group.largest_magnitude() / 127.0f);
        group.round(scale == 0 ? 0.0f : 1.0f / half_to_float(scale), numbers);
        return scale;
    }

    static void write_keys(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                           int n_rows) {
        for (int i = 0; i < dim; i += kGroup, block += kGroupBytes) {
            const int width = dim - i < kGroup ? dim - i : kGroup;
            for (int row = 0; row < n_rows; ++row) {
                int8_t numbers[kGroup];
                const uint16_t scale = quantise(x + row * stride + i, width, numbers);
                std::memcpy(block + (position + row) * sizeof scale, &scale, sizeof scale);
                uint8_t* out = block + kScaleBytes + (position + row) * 4;
                for (int at = 0; at < width; at += 4)
                    std::memcpy(out + at * kPageTokens, numbers + at, 4);
            }
        }
    }

    static void write_values(uint8_t* block, int dim, int position, const float* x, int64_t stride,
                             int n_rows) {
        auto* scales = reinterpret_cast<uint16_t*>(block);
        auto* out = reinterpret_cast<int8_t*>(block) + n_groups(dim) * kScaleBytes;
        for (int p = position; p < position + n_rows; ++p, x += stride) {
            int8_t* fours = out + p / 4 * round_up(dim, 16) * 4 + p % 4;
            for (int i = 0; i < dim; i += kGroup) {
                const int width = dim - i < kGroup ? dim - i : kGroup;
                int8_t numbers[kGroup];
                scales[i / kGroup * kPageTokens + p] = quantise(x + i, width, numbers);
                for (int at = 0; at < width; ++at) fours[(i + at) * 4] = numbers[at];
            }
        }
    }

    static size_t query_bytes(int dim, int n_rows) { return DotQueries(dim, n_rows).bytes(); }

    static void prepare_queries(const float* q, int dim, int n_rows, uint8_t* out) {
        const DotQueries queries(dim, n_rows);
        for (int t = 0; t < queries.tiles.n_tiles; ++t) {
            for (int row = queries.tiles.begin(t); row < queries.tiles.begin(t + 1);
                 ++row, q += dim) {
                for (int i = 0; i < dim; i += kGroup) {
                    const Group group(q + i, dim - i);
                    const float most = group.largest_magnitude();
                    alignas(4) int8_t numbers[kGroup];
                    group.round(most > 0 ? 127.0f / most : 0.0f, numbers);
                    queries.set_group(out, t, row - queries.tiles.begin(t), i / kGroup,
                                      most / 127.0f, numbers);
                }
            }
        }
    }

    static void score(const uint8_t* block, int dim, const uint8_t* queries, int n_rows, int from,
                      int to, float* scores, Ahead* ahead, float* scratch) {
        for (int g = 0; g < n_groups(dim); ++g) {
            const auto* halves = reinterpret_cast<const uint16_t*>(block + g * kGroupBytes);
            for (int p = 0; p < kPageTokens; p += kLanes)
                store(scratch + g * kPageTokens + p, load_half(halves + p));
        }
        const auto* keys = reinterpret_cast<const int8_t*>(block) + kScaleBytes;
        score_dots(keys, kGroupBytes, scratch, DotQueries(dim, n_rows), queries, from, to, scores,
                   ahead);
    }

    static void mix(const uint8_t* block, int dim, int n_positions, const float* weights,
                    int n_rows, float* sums, int64_t sums_stride, Ahead* ahead, float* scratch) {
        const auto* values = reinterpret_cast<const int8_t*>(block) + n_groups(dim) * kScaleBytes;
        const auto* scales = reinterpret_cast<const uint16_t*>(block);
        DotMix(values, scales, dim, n_positions, scratch)
            .run(weights, n_rows, sums, sums_stride, ahead);
    }
};

}  // namespace octavo::OCTAVO_LEVEL::kv_q8_0

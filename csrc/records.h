// Running results of attention: for a query row the sum of weighted values, the largest score so
// far and the total of the weights. Spans of positions give records of their own, which are joined.
#pragma once

#include <cmath>

#include "attend.h"
#include "row_tiles.h"
#include "rows.h"

namespace octavo::OCTAVO_LEVEL {

constexpr float kNothing = -INFINITY;  // the largest of no scores

OCTAVO_INLINE float exp_of(float x) {
    float lanes[kLanes];
    store(lanes, exp(splat(x)));
    return lanes[0];
}

// Records lie one after the other, `stride` floats apart: the sums, padded with zeros to whole
// vectors, then the total, lane by lane, then the largest score and that of the present page.
struct Records {
    static constexpr int kTotalLanes = 16;  // of which kLanes are used

    float* data;
    int padded;

    static int padded_dim(int dim) { return round_up(dim, 16); }
    static int stride_of(int dim) { return padded_dim(dim) + kTotalLanes + 16; }

    Records(float* memory, int dim) : data(memory), padded(padded_dim(dim)) {}

    int stride() const { return padded + kTotalLanes + 16; }
    float* sums(int row) const { return data + static_cast<int64_t>(row) * stride(); }
    float* total(int row) const { return sums(row) + padded; }
    float& largest(int row) const { return sums(row)[padded + kTotalLanes]; }
    float& page_largest(int row) const { return sums(row)[padded + kTotalLanes + 1]; }

    void clear(int n_rows) const {
        std::memset(data, 0, sizeof(float) * n_rows * stride());
        for (int row = 0; row < n_rows; ++row) largest(row) = kNothing;
    }

    // Turns the scores of a page (those of row r at scores + r * 64) into weights and adds them to
    // the totals. The sums are scaled to the new largest scores. In two loops, so that the
    // latencies of several rows overlap.
    void weigh(int first, int end, float* scores) const {
        for (int row = first; row < end; ++row) {
            const float* x = scores + row * kPageTokens;
            F most = load(x);
            for (int p = kLanes; p < kPageTokens; p += kLanes) most = max(most, load(x + p));
            page_largest(row) = octavo::OCTAVO_LEVEL::largest(most);
        }
        for (int row = first; row < end; ++row) {
            float* x = scores + row * kPageTokens;
            if (page_largest(row) > largest(row)) raise(row, page_largest(row));
            const F origin = splat(largest(row));
            F added = load(total(row));
            for (int p = 0; p < kPageTokens; p += kLanes) {
                const F weight = exp(sub(load(x + p), origin));
                store(x + p, weight);
                added = add(added, weight);
            }
            store(total(row), added);
        }
    }

    // Scales what there is to a larger largest score.
    void raise(int row, float to) const {
        const F factor = splat(exp_of(largest(row) - to));
        float* x = sums(row);
        for (int i = 0; i < padded + kTotalLanes; i += kLanes)
            store(x + i, mul(load(x + i), factor));
        largest(row) = to;
    }

    // Adds another record to this row.
    void join(int row, const Records& other, int other_row) const {
        const float here = other.largest(other_row);
        if (here == kNothing) return;
        if (here > largest(row)) raise(row, here);
        const F factor = splat(exp_of(here - largest(row)));
        float* x = sums(row);
        const float* y = other.sums(other_row);
        for (int i = 0; i < padded + kTotalLanes; i += kLanes)
            store(x + i, fma(load(y + i), factor, load(x + i)));
    }

    // out = sums / total, times the sigmoid of the gate where there is one.
    void finish(int row, const float* gate, float* out, int dim) const {
        const F whole = splat(sum(load(total(row)))), one = splat(1.0f);
        for (int i = 0; i < dim; i += kLanes) {
            F x = div(load(sums(row) + i), whole);
            if (gate) x = div(x, add(one, exp(sub(zero(), load_at_most(gate + i, dim - i)))));
            store_at_most(out + i, x, dim - i);
        }
    }
};

}  // namespace octavo::OCTAVO_LEVEL

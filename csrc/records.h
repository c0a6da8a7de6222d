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
// vectors, then the largest score and the total.
struct Records {
    float* data;
    int padded;

    static int padded_dim(int dim) { return round_up(dim, 16); }
    static int stride_of(int dim) { return padded_dim(dim) + 16; }

    Records(float* memory, int dim) : data(memory), padded(padded_dim(dim)) {}

    int stride() const { return padded + 16; }
    float* sums(int row) const { return data + static_cast<int64_t>(row) * stride(); }
    float& largest(int row) const { return sums(row)[padded]; }
    float& total(int row) const { return sums(row)[padded + 1]; }

    void clear(int n_rows) const {
        std::memset(data, 0, sizeof(float) * n_rows * stride());
        for (int row = 0; row < n_rows; ++row) largest(row) = kNothing;
    }

    // Turns the scores of a page into weights, those outside from <= p < to into zeros, and adds
    // them to the total. The sums are scaled to the new largest score.
    void weigh(int row, float* scores, int from, int to) const {
        for (int p = 0; p < from; ++p) scores[p] = kNothing;
        for (int p = to; p < kPageTokens; ++p) scores[p] = kNothing;
        F most = load(scores);
        for (int p = kLanes; p < kPageTokens; p += kLanes) most = max(most, load(scores + p));
        const float here = octavo::OCTAVO_LEVEL::largest(most);
        if (here > largest(row)) {
            scale(row, exp_of(largest(row) - here));
            largest(row) = here;
        }
        const F origin = splat(largest(row));
        F added = zero();
        for (int p = 0; p < kPageTokens; p += kLanes) {
            const F weight = exp(sub(load(scores + p), origin));
            store(scores + p, weight);
            added = add(added, weight);
        }
        total(row) += sum(added);
    }

    void scale(int row, float factor) const {
        float* x = sums(row);
        for (int i = 0; i < padded; i += kLanes) store(x + i, mul(load(x + i), splat(factor)));
        total(row) *= factor;
    }

    // Adds another record to this row.
    void join(int row, const Records& other, int other_row) const {
        const float here = other.largest(other_row);
        if (here == kNothing) return;
        if (here > largest(row)) {
            scale(row, exp_of(largest(row) - here));
            largest(row) = here;
        }
        const float factor = exp_of(here - largest(row));
        float* x = sums(row);
        const float* y = other.sums(other_row);
        for (int i = 0; i < padded; i += kLanes)
            store(x + i, fma(load(y + i), splat(factor), load(x + i)));
        total(row) += other.total(other_row) * factor;
    }

    // out = sums / total, times the sigmoid of the gate where there is one.
    void finish(int row, const float* gate, float* out, int dim) const {
        const F total_lanes = splat(total(row)), one = splat(1.0f);
        for (int i = 0; i < dim; i += kLanes) {
            F x = div(load(sums(row) + i), total_lanes);
            if (gate) x = div(x, add(one, exp(sub(zero(), load_at_most(gate + i, dim - i)))));
            store_at_most(out + i, x, dim - i);
        }
    }
};

}  // namespace octavo::OCTAVO_LEVEL

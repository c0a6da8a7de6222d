// The gated delta rule, a block of tokens at a time.
//
// Within a block, what a token reads from the state is what the state held before the block,
// decayed, plus what the block's earlier tokens wrote; so the state itself is read once and written
// once. With S the state before, G the running sum of the log decays, and d_s what token s writes
// along its key k_s:
//   d_t = beta_t (v_t - e^G_t S'k_t - sum over s < t of e^(G_t - G_s) (k_s . k_t) d_s)
//   o_t = e^G_t S'q_t + sum over s <= t of e^(G_t - G_s) (k_s . q_t) d_s
//   S  <- e^G_n S + sum over s of e^(G_n - G_s) k_s d_s'
// A block of one token is the recurrent form. Only differences with s <= t are exponentiated, so
// nothing overflows.
#pragma once

#include <cmath>

#include "op.h"
#include "row_tiles.h"
#include "rows.h"

namespace octavo::OCTAVO_LEVEL {

// Short, as the state is small: longer blocks do more work between tokens than they save on it.
constexpr int kBlockTokens = 16;
static_assert(kBlockTokens % kLanes == 0);
constexpr int kStateRows = 16;  // of the state, read at once where tokens are few
constexpr int kChunkDims = 64;  // of keys and queries, whose rows lie in chunks of so many dims

// A state in memory: a row of value dims for each key dim, `stride` floats apart.
struct State {
    float* data;
    int64_t stride;
};

// Rows `r` of out = decay * rows of state + sum over s of keys[s][r] * writes[s].
template <int kVectors>
struct UpdateTile {
    State state;
    float decay;
    Strip<float> keys, writes;
    int n_tokens;
    State out;

    template <int kRows>
    OCTAVO_INLINE void run() const {
        F sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v)
                sums[r][v] = mul(load(state.data + r * state.stride + v * kLanes), splat(decay));
        for (int s = 0; s < n_tokens; ++s) {
            F x[kVectors];
            for (int v = 0; v < kVectors; ++v)
                x[v] = load(writes.data + s * writes.step + v * kLanes);
            for (int r = 0; r < kRows; ++r) {
                const F k = splat(keys.data[s * keys.step + r]);
                for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(k, x[v], sums[r][v]);
            }
        }
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v)
                store(out.data + r * out.stride + v * kLanes, sums[r][v]);
    }
};

// Keys and queries of a block, shared by the value heads of a key head: rows of kChunkDims floats,
// padded with zeros, [chunks][keys of n tokens, then their queries].
class KeyBlock {
  public:
    static int n_floats(int key_dim) { return 2 * kBlockTokens * round_up(key_dim, kChunkDims); }
    // `memory`: n_floats.
    KeyBlock(float* memory, int key_dim)
        : dim_(key_dim), n_chunks_((key_dim + kChunkDims - 1) / kChunkDims), rows_(memory) {}

    int dim() const { return dim_; }
    int n_chunks() const { return n_chunks_; }
    int n_tokens() const { return n_; }
    void begin(int n_tokens) { n_ = n_tokens; }

    float* key(int t, int chunk) const { return row(t, chunk); }
    float* query(int t, int chunk) const { return row(n_ + t, chunk); }
    // The first row of all, for products.
    const float* rows(int chunk) const { return row(0, chunk); }

    // Scales keys to length 1 and queries to `query_length`; then their products are known.
    void normalise(float eps, float query_length) {
        for (int r = 0; r < 2 * n_; ++r) {
            const float length = r < n_ ? 1.0f : query_length;
            const F factor = splat(length / std::sqrt(dot(r, r) + eps));
            for (int c = 0; c < n_chunks_; ++c)
                for (float* x = row(r, c); x < row(r, c) + kChunkDims; x += kLanes)
                    store(x, mul(load(x), factor));
        }
        for (int t = 0; t < n_; ++t) {
            for (int s = 0; s < t; ++s) key_products_[t][s] = dot(s, t);
            for (int s = 0; s <= t; ++s) query_products_[t][s] = dot(s, n_ + t);
        }
    }

    // Of token s <= t's key with token t's key (s < t only) and query.
    float key_product(int s, int t) const { return key_products_[t][s]; }
    float query_product(int s, int t) const { return query_products_[t][s]; }

  private:
    float* row(int r, int chunk) const {
        return rows_ + (chunk * 2 * kBlockTokens + r) * kChunkDims;
    }

    float dot(int a, int b) const {
        F sums = zero();
        for (int c = 0; c < n_chunks_; ++c)
            for (int i = 0; i < kChunkDims; i += kLanes)
                sums = fma(load(row(a, c) + i), load(row(b, c) + i), sums);
        return sum(sums);
    }

    int dim_, n_chunks_;
    int n_ = 0;
    float* rows_;
    float key_products_[kBlockTokens][kBlockTokens], query_products_[kBlockTokens][kBlockTokens];
};

// One value head of a block. The caller fills values and gates, then calls `read_state`,
// `run_token` for each token in order, and `update`. Rows are padded with zeros to whole vectors.
class HeadBlock {
  public:
    static int n_floats(int key_dim, int value_dim) {
        return kBlockTokens * (round_up(key_dim, kChunkDims) + 4 * round_up(value_dim, kLanes));
    }
    // `memory`: n_floats.
    HeadBlock(float* memory, const KeyBlock& keys, int value_dim)
        : keys_(keys),
          key_padded_(keys.n_chunks() * kChunkDims),
          padded_(round_up(value_dim, kLanes)),
          decayed_(memory),
          writes_(decayed_ + kBlockTokens * key_padded_),
          reads_(writes_ + kBlockTokens * padded_),
          output_(reads_ + 2 * kBlockTokens * padded_) {}

    int padded() const { return padded_; }
    float* value(int t) const { return writes_ + t * padded_; }

    // Of tokens in order from 0.
    void set_gates(int t, float log_decay, float rate) {
        decay_sum_ = t == 0 ? log_decay : decay_sum_ + log_decay;
        log_decays_[t] = decay_sum_;
        rates_[t] = rate;
    }

    // reads = keys and queries x state.
    void read_state(State state) const {
        const int n = keys_.n_tokens();
        std::memset(reads_, 0, sizeof(float) * 2 * n * padded_);
        const RowTiles tiles(2 * n);
        const int step = tiles.n_tiles == 1 ? kStateRows : kChunkDims;
        for (int i = 0; i < keys_.dim(); i += step) {
            const int n_rows = keys_.dim() - i < step ? keys_.dim() - i : step;
            const Strip<float> rows{state.data + i * state.stride, state.stride};
            const float* chunk = keys_.rows(i / kChunkDims) + i % kChunkDims;
            for (int t = 0; t < tiles.n_tiles; ++t) {
                const int first = tiles.begin(t);
                add_products<kChunkDims>(rows, nullptr, n_rows, chunk + first * kChunkDims,
                                         tiles.height(t), padded_, reads_ + first * padded_,
                                         padded_);
            }
        }
    }

    // What token t writes, and its output (padded() floats).
    const float* run_token(int t) const {
        float from_keys[kBlockTokens], from_queries[kBlockTokens], ratios[kBlockTokens];
        for (int s = 0; s < kBlockTokens; s += kLanes)
            store(ratios + s, exp(sub(splat(log_decays_[t]), load(log_decays_ + s))));
        for (int s = 0; s < t; ++s) {
            from_keys[s] = -ratios[s] * keys_.key_product(s, t);
            from_queries[s] = ratios[s] * keys_.query_product(s, t);
        }
        from_queries[t] = keys_.query_product(t, t);
        const F decay = splat(std::exp(log_decays_[t])), rate = splat(rates_[t]);
        const float* from_state = reads_ + t * padded_;
        const float* for_query = reads_ + (keys_.n_tokens() + t) * padded_;
        for (int i = 0; i < padded_; i += kLanes) {
            F write = fma(sub(zero(), decay), load(from_state + i), load(value(t) + i));
            F output = mul(decay, load(for_query + i));
            for (int s = 0; s < t; ++s) {
                const F d = load(value(s) + i);
                write = fma(splat(from_keys[s]), d, write);
                output = fma(splat(from_queries[s]), d, output);
            }
            write = mul(write, rate);
            store(value(t) + i, write);
            store(output_ + i, fma(splat(from_queries[t]), write, output));
        }
        return output_;
    }

    // The state after the block, from the one before; `out` may be `state`.
    void update(State state, State out) const {
        for (int t = 0; t < keys_.n_tokens(); ++t) {
            const F left = splat(std::exp(decay_sum_ - log_decays_[t]));
            float* decayed = decayed_ + t * key_padded_;
            for (int c = 0; c < keys_.n_chunks(); ++c, decayed += kChunkDims)
                for (int i = 0; i < kChunkDims; i += kLanes)
                    store(decayed + i, mul(load(keys_.key(t, c) + i), left));
        }
        int i = 0;
        for (; i + kNarrow * kLanes <= padded_; i += kNarrow * kLanes)
            update_strip<kNarrow>(state, out, i);
        if (i < padded_) update_strip<1>(state, out, i);
    }

  private:
    template <int kVectors>
    void update_strip(State state, State out, int i) const {
        const float decay = std::exp(decay_sum_);
        const RowTiles tiles(keys_.dim());
        for (int t = 0; t < tiles.n_tiles; ++t) {
            const int row = tiles.begin(t);
            const UpdateTile<kVectors> update{{state.data + row * state.stride + i, state.stride},
                                              decay,
                                              {decayed_ + row, key_padded_},
                                              {writes_ + i, padded_},
                                              keys_.n_tokens(),
                                              {out.data + row * out.stride + i, out.stride}};
            with_rows<kMostRows>(tiles.height(t), update);
        }
    }

    const KeyBlock& keys_;
    int key_padded_, padded_;
    float decay_sum_ = 0;
    float log_decays_[kBlockTokens] = {}, rates_[kBlockTokens];
    float* decayed_;  // keys times what is left of them at the block's end
    float* writes_;   // values, then what is written
    float* reads_;    // from the state before, for the keys and then for the queries
    float* output_;
};

}  // namespace octavo::OCTAVO_LEVEL

// The gated delta rule of one value head, a block of tokens at a time.
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

// The tokens of a block. Rows are padded with zeros to whole vectors, keys and queries to whole
// chunks. The caller fills keys and queries (normalised), values and gates, then calls
// `read_state`, `run_token` for each token in order, and `update`.
class Block {
  public:
    static int n_floats(int key_dim, int value_dim) {
        return kBlockTokens * (3 * round_up(key_dim, kChunkDims) + 4 * round_up(value_dim, kLanes));
    }
    // `memory`: n_floats.
    Block(float* memory, int key_dim, int value_dim)
        : key_dim_(key_dim),
          key_padded_(round_up(key_dim, kChunkDims)),
          value_padded_(round_up(value_dim, kLanes)),
          rows_(memory),
          decayed_(rows_ + 2 * kBlockTokens * key_padded_),
          writes_(decayed_ + kBlockTokens * key_padded_),
          reads_(writes_ + kBlockTokens * value_padded_),
          output_(reads_ + 2 * kBlockTokens * value_padded_) {}

    int n_chunks() const { return key_padded_ / kChunkDims; }
    int value_padded() const { return value_padded_; }

    void begin(int n_tokens) {
        n_ = n_tokens;
        decay_sum_ = 0;
    }
    // Of tokens in order.
    void set_gates(int t, float log_decay, float rate) {
        log_decays_[t] = decay_sum_ += log_decay;
        rates_[t] = rate;
    }

    // kChunkDims floats of a token's key or query; value_padded() of its value.
    float* key(int t, int chunk) const { return row(t) + chunk * chunk_stride(); }
    float* query(int t, int chunk) const { return row(n_ + t) + chunk * chunk_stride(); }
    float* value(int t) const { return writes_ + t * value_padded_; }

    // Scales token t's key to length 1, its query to length `query_length`.
    void normalise(int t, float eps, float query_length) const {
        for (int half = 0; half < 2; ++half) {
            const int r = half * n_ + t;
            const float length = half == 0 ? 1.0f : query_length;
            const F factor = splat(length / std::sqrt(dot(r, r) + eps));
            for (int c = 0; c < n_chunks(); ++c) {
                float* x = row(r) + c * chunk_stride();
                for (int i = 0; i < kChunkDims; i += kLanes) store(x + i, mul(load(x + i), factor));
            }
        }
    }

    // reads = keys and queries x state.
    void read_state(State state) {
        std::memset(reads_, 0, sizeof(float) * 2 * n_ * value_padded_);
        const RowTiles tiles(2 * n_);
        const int step = tiles.n_tiles == 1 ? kStateRows : kChunkDims;
        for (int i = 0; i < key_dim_; i += step) {
            const int n_rows = key_dim_ - i < step ? key_dim_ - i : step;
            const Strip<float> rows{state.data + i * state.stride, state.stride};
            const float* chunk = row(0) + i / kChunkDims * chunk_stride() + i % kChunkDims;
            for (int t = 0; t < tiles.n_tiles; ++t) {
                const int first = tiles.begin(t);
                add_products<kChunkDims>(rows, nullptr, n_rows, chunk + first * kChunkDims,
                                         tiles.height(t), value_padded_,
                                         reads_ + first * value_padded_, value_padded_);
            }
        }
    }

    // What token t writes, and its output (value_padded floats).
    const float* run_token(int t) {
        float ratios[kBlockTokens], from_keys[kBlockTokens], from_queries[kBlockTokens];
        for (int s = 0; s < kBlockTokens; s += kLanes)
            store(ratios + s, exp(sub(splat(log_decays_[t]), load(log_decays_ + s))));
        for (int s = 0; s < t; ++s) {
            from_keys[s] = -ratios[s] * dot(s, t);
            from_queries[s] = ratios[s] * dot(s, n_ + t);
        }
        from_queries[t] = dot(t, n_ + t);
        const F decay = splat(std::exp(log_decays_[t])), rate = splat(rates_[t]);
        const float* from_state = reads_ + t * value_padded_;
        const float* for_query = reads_ + (n_ + t) * value_padded_;
        for (int i = 0; i < value_padded_; i += kLanes) {
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
    void update(State state, State out) {
        for (int t = 0; t < n_; ++t) {
            const F left = splat(std::exp(decay_sum_ - log_decays_[t]));
            float* out = decayed_ + t * key_padded_;
            for (int c = 0; c < n_chunks(); ++c, out += kChunkDims)
                for (int i = 0; i < kChunkDims; i += kLanes)
                    store(out + i, mul(load(key(t, c) + i), left));
        }
        int i = 0;
        for (; i + kNarrow * kLanes <= value_padded_; i += kNarrow * kLanes)
            update_strip<kNarrow>(state, out, i);
        if (i < value_padded_) update_strip<1>(state, out, i);
    }

  private:
    template <int kVectors>
    void update_strip(State state, State out, int i) const {
        const float decay = std::exp(decay_sum_);
        const RowTiles tiles(key_dim_);
        for (int tile = 0; tile < tiles.n_tiles; ++tile) {
            const int row = tiles.begin(tile);
            const UpdateTile<kVectors> update{{state.data + row * state.stride + i, state.stride},
                                              decay,
                                              {decayed_ + row, key_padded_},
                                              {writes_ + i, value_padded_},
                                              n_,
                                              {out.data + row * out.stride + i, out.stride}};
            with_rows<kMostRows>(tiles.begin(tile + 1) - row, update);
        }
    }

    float* row(int r) const { return rows_ + r * kChunkDims; }
    int64_t chunk_stride() const { return 2 * kBlockTokens * kChunkDims; }

    float dot(int a, int b) const {
        F sums = zero();
        for (int c = 0; c < n_chunks(); ++c) {
            const float *x = row(a) + c * chunk_stride(), *y = row(b) + c * chunk_stride();
            for (int i = 0; i < kChunkDims; i += kLanes) sums = fma(load(x + i), load(y + i), sums);
        }
        return sum(sums);
    }

    int key_dim_, key_padded_, value_padded_;
    int n_ = 0;
    float decay_sum_ = 0;
    float log_decays_[kBlockTokens] = {}, rates_[kBlockTokens];
    float* rows_;     // [chunks][keys of n tokens, then their queries][kChunkDims]
    float* decayed_;  // keys times what is left of them at the block's end
    float* writes_;   // values, then what is written
    float* reads_;    // from the state before, for the keys and then for the queries
    float* output_;
};

}  // namespace octavo::OCTAVO_LEVEL

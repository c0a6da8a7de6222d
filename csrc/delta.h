// The gated delta rule of one value head, for a block of tokens.
//
// With S the state (key dims x value dims), e the decay and b the rate of a token:
//   d = b (v - e S'k)      what the token writes along its key
//   o = e S'q + (k.q) d    its output
//   S <- e S + k d'
// Value dims are independent of each other. So a strip of them, small enough for the nearest cache,
// goes through all tokens of the block before the next strip, and the rows that a token changes are
// multiplied with the next token's key and query while they are in registers. The sums run over the
// key dims in order: a result does not depend on where blocks begin.
#pragma once

#include <cmath>

#include "op.h"
#include "rows.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

constexpr int kBlockTokens = 16;
constexpr int kStripVectors = 4;

// A state in memory: a row of value dims for each key dim, `stride` floats apart.
struct State {
    float* data;
    int64_t stride;
};

// Keys and queries of a block, shared by the value heads of a key head, padded with zeros.
class KeyBlock {
  public:
    static size_t n_floats(int key_dim) { return 2 * kBlockTokens * round_up(key_dim, kLanes); }
    // `memory`: n_floats.
    KeyBlock(float* memory, int key_dim)
        : dim_(key_dim), padded_(round_up(key_dim, kLanes)), rows_(memory) {}

    int dim() const { return dim_; }
    int padded() const { return padded_; }
    int n_tokens() const { return n_; }
    void begin(int n_tokens) { n_ = n_tokens; }

    float* key(int t) const { return rows_ + t * padded_; }
    float* query(int t) const { return rows_ + (kBlockTokens + t) * padded_; }
    // Of a token's key with its query.
    float product(int t) const { return products_[t]; }

    // Scales keys to length 1 and queries to `query_length`.
    void normalise(float eps, float query_length) {
        for (int t = 0; t < n_; ++t) {
            scale(key(t), 1.0f / std::sqrt(dot(key(t), key(t)) + eps));
            scale(query(t), query_length / std::sqrt(dot(query(t), query(t)) + eps));
            products_[t] = dot(key(t), query(t));
        }
    }

  private:
    void scale(float* x, float factor) const {
        for (int i = 0; i < padded_; i += kLanes) store(x + i, mul(load(x + i), splat(factor)));
    }
    float dot(const float* a, const float* b) const {
        F sums = zero();
        for (int i = 0; i < padded_; i += kLanes) sums = fma(load(a + i), load(b + i), sums);
        return sum(sums);
    }

    int dim_, padded_;
    int n_ = 0;
    float* rows_;
    float products_[kBlockTokens];
};

// One value head of a block. The caller fills values and gates, then calls `run`. Rows are padded
// with zeros to whole vectors.
class HeadBlock {
  public:
    static size_t n_floats(int key_dim, int value_dim) {
        return kBlockTokens * round_up(value_dim, kLanes) + key_dim * kStripVectors * kLanes;
    }
    // `memory`: n_floats.
    HeadBlock(float* memory, const KeyBlock& keys, int value_dim)
        : keys_(keys),
          padded_(round_up(value_dim, kLanes)),
          values_(memory),
          strip_(memory + kBlockTokens * padded_) {}

    int padded() const { return padded_; }
    // A token's values; after `run` its output.
    float* value(int t) const { return values_ + t * padded_; }

    void set_gates(int t, float log_decay, float rate) {
        decays_[t] = std::exp(log_decay);
        rates_[t] = rate;
    }

    // From the state before the block to the one after; `out` may be `state`.
    void run(State state, State out) const {
        int i = 0;
        for (; i + kStripVectors * kLanes <= padded_; i += kStripVectors * kLanes)
            run_strip<kStripVectors>({state.data + i, state.stride}, {out.data + i, out.stride}, i);
        for (; i < padded_; i += kLanes)
            run_strip<1>({state.data + i, state.stride}, {out.data + i, out.stride}, i);
    }

  private:
    template <int kVectors>
    void run_strip(State state, State out, int at) const {
        const int n = keys_.n_tokens();
        const State strip{strip_, kVectors * kLanes};
        F for_key[kVectors], for_query[kVectors], write[kVectors];
        // Rows far apart fall on the same places of a cache: for several tokens they are copied.
        read<kVectors>(state, strip, n > 1, for_key, for_query);
        for (int t = 0; t < n; ++t) {
            const F decay = splat(decays_[t]), rate = splat(rates_[t]);
            const F product = splat(keys_.product(t));
            for (int v = 0; v < kVectors; ++v) {
                float* value = values_ + t * padded_ + at + v * kLanes;
                write[v] = mul(rate, fma(sub(zero(), decay), for_key[v], load(value)));
                store(value, fma(product, write[v], mul(decay, for_query[v])));
            }
            if (t + 1 < n)
                advance<kVectors>(strip, t, write, for_key, for_query);
            else
                leave<kVectors>(n > 1 ? strip : state, out, t, write);
        }
    }

    // What the first token's key and query read.
    template <int kVectors>
    OCTAVO_INLINE void read(State state, State copy, bool copies, F* for_key, F* for_query) const {
        for (int v = 0; v < kVectors; ++v) for_key[v] = for_query[v] = zero();
        const float *key = keys_.key(0), *query = keys_.query(0);
        for (int i = 0; i < keys_.dim(); ++i) {
            const F k = splat(key[i]), q = splat(query[i]);
            for (int v = 0; v < kVectors; ++v) {
                const F s = load(state.data + i * state.stride + v * kLanes);
                if (copies) store(copy.data + i * copy.stride + v * kLanes, s);
                for_key[v] = fma(s, k, for_key[v]);
                for_query[v] = fma(s, q, for_query[v]);
            }
        }
    }

    // Writes token t and reads for the next one.
    template <int kVectors>
    OCTAVO_INLINE void advance(State strip, int t, const F* write, F* for_key, F* for_query) const {
        F reads[kVectors], queries[kVectors], writes[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            reads[v] = queries[v] = zero();
            writes[v] = write[v];
        }
        const F decay = splat(decays_[t]);
        const float *key = keys_.key(t), *next = keys_.key(t + 1), *query = keys_.query(t + 1);
        for (int i = 0; i < keys_.dim(); ++i) {
            const F k = splat(key[i]), k_next = splat(next[i]), q = splat(query[i]);
            for (int v = 0; v < kVectors; ++v) {
                float* row = strip.data + i * strip.stride + v * kLanes;
                const F s = fma(k, writes[v], mul(decay, load(row)));
                store(row, s);
                reads[v] = fma(s, k_next, reads[v]);
                queries[v] = fma(s, q, queries[v]);
            }
        }
        for (int v = 0; v < kVectors; ++v) {
            for_key[v] = reads[v];
            for_query[v] = queries[v];
        }
    }

    // Writes the last token.
    template <int kVectors>
    OCTAVO_INLINE void leave(State from, State out, int t, const F* write) const {
        const F decay = splat(decays_[t]);
        const float* key = keys_.key(t);
        for (int i = 0; i < keys_.dim(); ++i) {
            const F k = splat(key[i]);
            for (int v = 0; v < kVectors; ++v) {
                const F s = load(from.data + i * from.stride + v * kLanes);
                store(out.data + i * out.stride + v * kLanes, fma(k, write[v], mul(decay, s)));
            }
        }
    }

    const KeyBlock& keys_;
    int padded_;
    float decays_[kBlockTokens], rates_[kBlockTokens];
    float* values_;
    float* strip_;  // a strip of the state while a block of several tokens goes through it
};

}  // namespace octavo::OCTAVO_LEVEL

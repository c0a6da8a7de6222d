// The gated delta net: short convolution, normalised queries and keys, the delta rule (delta.h),
// normalised and gated output. A chunk is one key head of one sequence with its value heads, whose
// states stay in the caches from the first token to the last.
#include <cmath>

#include "chunks.h"
#include "delta.h"
#include "kernels.h"
#include "program.h"
#include "row_tiles.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

constexpr int kSliceChannels = 1024;

float sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

float softplus(float x) {
    return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
}

// The raw inputs of one sequence's convolution, those before the step included.
class Inputs {
  public:
    Inputs(const RecurArgs& args, int s)
        : qkv_(args.qkv),
          first_(args.sequences.starts[s]),
          end_(args.sequences.starts[s + 1]),
          history_(args.conv_kernel - 1) {
        const int64_t slot = args.sequences.slots[s];
        if (args.sequences.n_past[s] > 0) past_ = args.conv + slot * history_ * args.qkv.dim;
    }

    int end() const { return end_; }  // behind the last token

    // All channels of token t >= start - (kernel - 1); nullptr: zeros.
    const float* at(int t) const {
        if (t >= first_) return qkv_.at(t, 0);
        return past_ ? past_ + static_cast<int64_t>(t - first_ + history_) * qkv_.dim : nullptr;
    }

  private:
    Heads qkv_;
    int first_, end_, history_;
    const float* past_ = nullptr;
};

// The inputs that a block's convolutions read: row t + tap is tap `tap` of the block's token t.
struct Window {
    const float** rows;
    int token, n_tokens;
    int n_missing;  // rows before the sequence's start, which count as zeros
    int end;        // of the sequence

    int first_tap(int t) const { return n_missing > t ? n_missing - t : 0; }

    // Asks for some channels of the block that follows.
    void fetch_next(const Heads& x, int channel, int width) const {
        for (int t = token + n_tokens; t < token + 2 * n_tokens && t < end; ++t)
            for (int i = 0; i < width; i += 16) OCTAVO_PREFETCH(x.at(t, 0) + channel + i);
    }
};

Window window_of(const Inputs& inputs, int token, int n_tokens, int n_taps, const float** rows) {
    Window window{rows, token, n_tokens, 0, inputs.end()};
    for (int i = 0; i < n_tokens + n_taps - 1; ++i) {
        rows[i] = inputs.at(token - n_taps + 1 + i);
        if (!rows[i]) window.n_missing = i + 1;
    }
    return window;
}

// A chunk's memory.
struct Room {
    Room(Thread& thread, const RecurArgs& args)
        : n_heads(args.n_value_heads / args.n_key_heads),
          stride(round_up(args.value_dim, kLanes)),
          state_floats(args.key_dim * stride) {
        const size_t key_floats = KeyBlock::n_floats(args.key_dim);
        const size_t n_floats =
            n_heads * state_floats + key_floats + HeadBlock::n_floats(args.key_dim, args.value_dim);
        const size_t n_rows = kBlockTokens + args.conv_kernel;
        own_states = static_cast<float*>(thread.scratch(
            sizeof(float) * n_floats + sizeof(State) * n_heads + sizeof(float*) * n_rows));
        keys = own_states + n_heads * state_floats;
        block = keys + key_floats;
        states = reinterpret_cast<State*>(own_states + n_floats);
        rows = reinterpret_cast<const float**>(states + n_heads);
    }

    // Where the state of the key head's i-th value head lies while it is not in a slot.
    State own(int i) const { return {own_states + i * state_floats, stride}; }

    int n_heads;  // value heads of the key head
    int64_t stride;
    size_t state_floats;
    float* own_states;
    float* keys;
    float* block;
    State* states;  // where they lie at present
    const float** rows;
};

class Delta final : public Op {
  public:
    Delta(Program& program, const RecurArgs& args) : args_(args) {
        // Taps of neighbouring channels side by side.
        const int n_channels = args.qkv.dim, n_taps = args.conv_kernel;
        taps_ = static_cast<float*>(program.buffer(sizeof(float) * n_channels * n_taps));
        for (int channel = 0; channel < n_channels; ++channel)
            for (int tap = 0; tap < n_taps; ++tap)
                taps_[tap * n_channels + channel] = args.conv_weight[channel * n_taps + tap];
    }

    int prepare(int) override {
        return args_.qkv.n_tokens == 0 ? 0 : args_.sequences.n_sequences * args_.n_key_heads;
    }

    void run(int chunk, Thread& thread) override {
        const Sequences& all = args_.sequences;
        const int s = chunk / args_.n_key_heads, key_head = chunk % args_.n_key_heads;
        const int end = all.starts[s + 1];
        if (all.starts[s] == end) return;
        const Room room(thread, args_);
        KeyBlock keys(room.keys, args_.key_dim);
        HeadBlock block(room.block, keys, args_.value_dim);
        const Inputs inputs(args_, s);
        for (int i = 0; i < room.n_heads; ++i)
            room.states[i] = state_before(s, head_of(key_head, i), room.own(i));
        for (int t = all.starts[s], n; t < end; t += n) {
            n = 1;  // a block ends where a state is asked for
            while (n < kBlockTokens && t + n < end && all.state_slots[t + n - 1] < 0) ++n;
            const Window window = window_of(inputs, t, n, args_.conv_kernel, room.rows);
            load_keys(window, key_head, keys);
            const int slot = all.state_slots[t + n - 1];
            for (int i = 0; i < room.n_heads; ++i) {
                const int head = head_of(key_head, i);
                const State after = place_after(slot, head, room.own(i));
                run_head(window, head, room.states[i], after, block);
                room.states[i] = after;
                if (slot >= 0 && !is_whole()) copy(after, in_slot(slot, head));
            }
        }
    }

  private:
    // Whether a state in its slot has rows of whole vectors; if not, a copy is worked on.
    bool is_whole() const { return args_.value_dim % kLanes == 0; }

    State in_slot(int slot, int head) const {
        const int64_t index = static_cast<int64_t>(slot) * args_.n_value_heads + head;
        return {args_.state + index * args_.key_dim * args_.value_dim, args_.value_dim};
    }

    void copy(State from, State to) const {
        for (int i = 0; i < args_.key_dim; ++i)
            std::memcpy(to.data + i * to.stride, from.data + i * from.stride,
                        sizeof(float) * args_.value_dim);
    }

    State state_before(int s, int head, State own) const {
        const State stored = in_slot(args_.sequences.slots[s], head);
        const bool is_new = args_.sequences.n_past[s] == 0;
        if (!is_new && is_whole()) return stored;
        std::memset(own.data, 0, sizeof(float) * args_.key_dim * own.stride);
        if (!is_new) copy(stored, own);
        return own;
    }

    // Where the state goes after a block: to the slot that wants it, if it can be worked on there.
    State place_after(int slot, int head, State own) const {
        return slot >= 0 && is_whole() ? in_slot(slot, head) : own;
    }

    // The i-th value head of a key head.
    int head_of(int key_head, int i) const {
        return args_.tiled ? key_head + i * args_.n_key_heads
                           : key_head * (args_.n_value_heads / args_.n_key_heads) + i;
    }

    void load_keys(const Window& window, int key_head, KeyBlock& keys) const {
        keys.begin(window.n_tokens);
        const int dim = args_.key_dim, channel = key_head * dim, padded = keys.padded();
        convolve(window, channel, dim, keys.query(0), padded);
        convolve(window, args_.n_key_heads * dim + channel, dim, keys.key(0), padded);
        keys.normalise(args_.eps, 1.0f / std::sqrt(static_cast<float>(dim)));
    }

    void run_head(const Window& window, int head, State state, State after,
                  HeadBlock& block) const {
        const int dim = args_.value_dim, token = window.token;
        window.fetch_next(args_.z, head * dim, dim);
        convolve(window, 2 * args_.n_key_heads * args_.key_dim + head * dim, dim, block.value(0),
                 block.padded());
        for (int t = 0; t < window.n_tokens; ++t) {
            const float alpha = args_.alpha.at(token + t, 0)[head];
            block.set_gates(t, args_.a[head] * softplus(alpha + args_.dt[head]),
                            sigmoid(args_.beta.at(token + t, 0)[head]));
        }
        block.run(state, after);
        for (int t = 0; t < window.n_tokens; ++t) {
            const int64_t at = static_cast<int64_t>(token + t) * args_.n_value_heads + head;
            finish(block.value(t), args_.z.at(token + t, 0) + head * dim, args_.out + at * dim);
        }
    }

    // SiLU of the convolution of `width` channels of the window's tokens, in rows of `padded`
    // floats, zeros at their ends.
    void convolve(const Window& window, int channel, int width, float* out, int padded) const {
        window.fetch_next(args_.qkv, channel, width);
        const float* taps = taps_ + channel;
        for (int i = 0; i < padded; i += kLanes, out += kLanes) {
            const int left = width - i;
            for (int t = 0; t < window.n_tokens; ++t) {
                F sum = zero();
                for (int tap = window.first_tap(t); left > 0 && tap < args_.conv_kernel; ++tap) {
                    const float* row = window.rows[t + tap] + channel + i;
                    const float* weights = taps + tap * args_.qkv.dim + i;
                    sum = left >= kLanes
                              ? fma(load(weights), load(row), sum)
                              : fma(load_first(weights, left), load_first(row, left), sum);
                }
                store(out + t * padded, silu(sum));
            }
        }
    }

    // out = RMS norm of x, gated.
    void finish(const float* x, const float* gate, float* out) const {
        const int dim = args_.value_dim;
        F squares = zero();
        for (int i = 0; i < dim; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
        const F factor = splat(1.0f / std::sqrt(sum(squares) / dim + args_.eps));
        for (int i = 0; i < dim; i += kLanes) {
            const F weight = load_at_most(args_.norm_weight + i, dim - i);
            const F gated = silu(load_at_most(gate + i, dim - i));
            const F normed = mul(mul(load(x + i), factor), weight);
            store_at_most(out + i, mul(normed, gated), dim - i);
        }
    }

    RecurArgs args_;
    float* taps_;
};

// Stores the convolution inputs that the next step will need, once nobody reads the old ones any
// more; an item is a slice of the channels of one sequence.
class SaveInputs final : public Op {
  public:
    explicit SaveInputs(const RecurArgs& args)
        : args_(args), n_slices_((args.qkv.dim + kSliceChannels - 1) / kSliceChannels) {}

    int prepare(int) override {
        if (args_.conv_kernel == 1) return 0;
        chunks_ = chunks_of(args_.sequences.n_sequences * n_slices_,
                            args_.conv_kernel * kSliceChannels, kSmallWork);
        return chunks_.n_items == 0 ? 0 : chunks_.count();
    }

    void run(int chunk, Thread& thread) override {
        for (int item = chunks_.begin(chunk); item < chunks_.end(chunk); ++item) {
            const int channel = item % n_slices_ * kSliceChannels;
            const int left = args_.qkv.dim - channel;
            save(item / n_slices_, channel, left < kSliceChannels ? left : kSliceChannels, thread);
        }
    }

  private:
    void save(int s, int channel, int width, Thread& thread) const {
        const Sequences& all = args_.sequences;
        const int history = args_.conv_kernel - 1;
        // A slot that is written may be the one that was read: its inputs are kept aside.
        auto* past = static_cast<float*>(thread.scratch(sizeof(float) * history * width));
        const Inputs inputs(args_, s);
        const int first = all.starts[s];
        for (int i = 0; i < history; ++i)
            fetch(inputs.at(first - history + i), channel, width, past + i * width);
        for (int t = first; t < all.starts[s + 1]; ++t) {
            if (all.state_slots[t] < 0) continue;
            float* out = args_.conv +
                         static_cast<int64_t>(all.state_slots[t]) * history * args_.qkv.dim +
                         channel;
            for (int i = 0; i < history; ++i, out += args_.qkv.dim) {
                const int from = t - history + 1 + i;
                if (from >= first)
                    fetch(inputs.at(from), channel, width, out);
                else
                    std::memcpy(out, past + (from - first + history) * width,
                                sizeof(float) * width);
            }
        }
    }

    static void fetch(const float* row, int channel, int width, float* out) {
        if (row)
            std::memcpy(out, row + channel, sizeof(float) * width);
        else
            std::memset(out, 0, sizeof(float) * width);
    }

    RecurArgs args_;
    int n_slices_;
    Chunks chunks_;
};

}  // namespace

void recur(Program& program, const RecurArgs& args) {
    program.add(new Delta(program, args));
    program.add(new SaveInputs(args));
}

}  // namespace octavo::OCTAVO_LEVEL

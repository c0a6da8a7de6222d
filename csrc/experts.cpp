// Gated feed-forward: routed experts (`experts`) and the dense or shared one (`glu`, which is one
// expert that every token uses).
//
// A pair is one use of an expert by a token. Pairs are sorted by expert; gate and up of a pair give
// its hidden row, down gives its result, and a token's results are added in the order of its
// experts. So what a token gets does not depend on the other tokens.
#include <cmath>
#include <new>

#include "chunks.h"
#include "expert_rows.h"
#include "level.h"
#include "pairs.h"
#include "program.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

class Sort final : public Op {
  public:
    explicit Sort(Pairs* pairs) : pairs_(pairs) {}
    int prepare(int) override { return pairs_->count() > 0; }
    void run(int, Thread&) override { pairs_->sort(); }

  private:
    Pairs* pairs_;
};

// The work of one layer, shared by its operations.
struct Layer {
    Pairs pairs;
    bool tiled;  // panels instead of dot products
    Matrix gate, up, down;
    bool fused;      // gate holds gate rows, then up rows
    bool quantises;  // gate and up leave their results quantised, in hidden.quant
    Activation activation;
    int hidden_dim;
    int out_dim;
    Factor x, hidden;
    float* hidden_rows;  // (pairs, hidden_dim)
    float* results;      // (pairs, out_dim)
};

F gelu(F x) {
    // x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), which is the tanh form.
    const F inner = mul(x, fma(mul(x, x), splat(0.044715f * 1.5957691216f), splat(1.5957691216f)));
    return div(x, add(splat(1.0f), exp(sub(zero(), inner))));
}

void activate(Activation activation, const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; i += kLanes) {
        const int some = n - i < kLanes ? n - i : kLanes;
        const F g = load_first(gate + i, some);
        const F acted = activation == Activation::kSilu ? silu(g) : gelu(g);
        store_first(out + i, mul(acted, load_first(up + i, some)), some);
    }
}

class GateUp final : public Op {
  public:
    explicit GateUp(Layer* layer) : layer_(layer) {}

    int prepare(int n_threads) override {
        chunks_.cut(layer_->pairs, layer_->tiled, layer_->hidden_dim, layer_->gate.rows.row_bytes,
                    layer_->quantises ? kGroup : kPanelRows, n_threads);
        return chunks_.count();
    }

    void run(int chunk, Thread& thread) override {
        const Layer& l = *layer_;
        const auto place = chunks_.at(chunk);
        const int gate_rows = l.fused ? 2 * l.hidden_dim : l.hidden_dim;
        const ExpertRows gate = within(
            rows_of(l.gate, gate_rows, place.group->expert, place.row0, place.row1), l.hidden_dim);
        const int n_rows = gate.row1 - gate.row0;
        const int up_row0 = l.fused ? l.hidden_dim + place.row0 : place.row0;
        const ExpertRows up = rows_of(l.fused ? l.gate : l.up, gate_rows, place.group->expert,
                                      up_row0, up_row0 + n_rows);
        if (!l.tiled) {
            ask_for_rows(gate);
            ask_for_rows(up);
        }
        const int64_t stride = place.row1 - place.row0;
        const size_t n_floats = (place.to - place.from) * stride;
        auto* g = static_cast<float*>(
            thread.scratch(2 * n_floats * sizeof(float) + multiply_scratch_bytes()));
        float* u = g + n_floats;
        void* scratch = u + n_floats;
        multiply(gate, l.x, *place.group, place.from, place.to, l.tiled, g, stride, scratch);
        multiply(up, l.x, *place.group, place.from, place.to, l.tiled, u, stride, scratch);
        for (int i = place.from; i < place.to; ++i, g += stride, u += stride) {
            const int position = place.group->first + i;
            float* out = l.hidden_rows + static_cast<size_t>(position) * l.hidden_dim + place.row0;
            activate(l.activation, g, u, n_rows, l.quantises ? g : out);
            if (l.quantises) quantise_columns(g, n_rows, l.hidden.quant, position, place.row0);
        }
    }

  private:
    static ExpertRows within(ExpertRows rows, int n_rows) {
        if (rows.row1 > n_rows) rows.row1 = rows.matrix.rows.n_rows = n_rows;
        return rows;
    }

    Layer* layer_;
    GroupChunks chunks_;
};

class Down final : public Op {
  public:
    explicit Down(Layer* layer) : layer_(layer) {}

    int prepare(int n_threads) override {
        chunks_.cut(layer_->pairs, layer_->tiled, layer_->out_dim, layer_->down.rows.row_bytes,
                    kPanelRows, n_threads);
        return chunks_.count();
    }

    void run(int chunk, Thread& thread) override {
        const Layer& l = *layer_;
        const auto place = chunks_.at(chunk);
        const ExpertRows down =
            rows_of(l.down, l.out_dim, place.group->expert, place.row0, place.row1);
        float* out = l.results + static_cast<size_t>(place.group->first + place.from) * l.out_dim +
                     place.row0;
        multiply(down, l.hidden, *place.group, place.from, place.to, l.tiled, out, l.out_dim,
                 thread.scratch(multiply_scratch_bytes()));
    }

  private:
    Layer* layer_;
    GroupChunks chunks_;
};

// out[i] of a token, n of its columns: its pairs' results, weighted, in the order of its experts.
// Results of the pair at sorted position p: results + p * stride.
void combine(const Pairs& pairs, int token, const float* weights, const float* results,
             int64_t stride, int n, float* out) {
    const int32_t* position = pairs.position + token * pairs.n_used;
    weights += token * pairs.n_used;
    for (int i = 0; i < n; i += kLanes) {
        const int some = n - i < kLanes ? n - i : kLanes;
        F total = zero();
        for (int j = 0; j < pairs.n_used; ++j) {
            if (position[j] < 0) continue;
            const float* result = results + position[j] * stride;
            total = fma(load_first(result + i, some), splat(weights[j]), total);
        }
        store_first(out + i, total, some);
    }
}

// Of few tokens: down and the sum over a token's experts, some rows of all experts a chunk. What
// they give stays in the processor's cache.
class DownCombine final : public Op {
  public:
    DownCombine(Layer* layer, const float* weights, float* out)
        : layer_(layer), weights_(weights), out_(out) {}

    int prepare(int n_threads) override {
        const double row_bytes =
            static_cast<double>(layer_->pairs.n_groups) * layer_->down.rows.row_bytes;
        chunks_ = chunks_of(layer_->out_dim, row_bytes,
                            stream_bytes(row_bytes * layer_->out_dim, n_threads));
        chunks_.per_chunk = round_up(chunks_.per_chunk, kPanelRows);
        return chunks_.count();
    }

    void run(int chunk, Thread& thread) override {
        const Layer& l = *layer_;
        const int row0 = chunks_.begin(chunk), row1 = chunks_.end(chunk), n_rows = row1 - row0;
        auto* results = static_cast<float*>(
            thread.scratch(static_cast<size_t>(l.pairs.count()) * n_rows * sizeof(float)));
        const Group* group = l.pairs.groups;
        ExpertRows next = rows_of(l.down, l.out_dim, group->expert, row0, row1);
        ask_for_rows(next);
        for (const Group* end = group + l.pairs.n_groups; group < end; ++group) {
            const ExpertRows down = next;
            if (group + 1 < end) {
                next = rows_of(l.down, l.out_dim, group[1].expert, row0, row1);
                ask_for_rows(next);
            }
            multiply(down, l.hidden, *group, 0, group->n, /*tiled=*/false,
                     results + static_cast<size_t>(group->first) * n_rows, n_rows, nullptr);
        }
        for (int t = 0; t < l.pairs.n_tokens; ++t)
            combine(l.pairs, t, weights_, results, n_rows, n_rows,
                    out_ + static_cast<size_t>(t) * l.out_dim + row0);
    }

  private:
    Layer* layer_;
    const float* weights_;
    float* out_;
    Chunks chunks_;
};

// The sum of many tokens.
class Combine final : public Op {
  public:
    Combine(const Layer* layer, const float* weights, float* out)
        : layer_(layer), weights_(weights), out_(out) {}

    int prepare(int) override {
        const Pairs& pairs = layer_->pairs;
        chunks_ = chunks_of(pairs.n_tokens, pairs.n_used * layer_->out_dim, 2 * kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        const int n = layer_->out_dim;
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t)
            combine(layer_->pairs, t, weights_, layer_->results, n, n,
                    out_ + static_cast<size_t>(t) * n);
    }

  private:
    const Layer* layer_;
    const float* weights_;
    float* out_;
    Chunks chunks_;
};

// The shared expert's weight of each token: sigmoid(scale . x).
class SharedWeights final : public Op {
  public:
    SharedWeights(const Heads& x, const float* scale, float* weights)
        : x_(x), scale_(scale), weights_(weights) {}

    int prepare(int) override {
        chunks_ = chunks_of(x_.n_tokens, x_.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            F total = zero();
            for (int i = 0; i < x_.dim; i += kLanes) {
                const int some = x_.dim - i < kLanes ? x_.dim - i : kLanes;
                total = fma(load_first(x_.at(t, 0) + i, some), load_first(scale_ + i, some), total);
            }
            weights_[t] = 1.0f / (1.0f + std::exp(-sum(total)));
        }
    }

  private:
    Heads x_;
    const float* scale_;
    float* weights_;
    Chunks chunks_;
};

template <typename T>
T* array(Program& program, size_t n) {
    return static_cast<T*>(program.passing(n * sizeof(T)));
}

// Readies x for the formats of `matrices`.
Factor factor_of(Program& program, Layer* layer, const Heads& x, const int32_t* rows,
                 const Matrix* const* matrices, int n_matrices) {
    bool quantised = false, floating = false;
    for (int i = 0; i < n_matrices; ++i)
        (matrices[i]->format->is_float ? floating : quantised) = true;
    Factor factor{x, {}, rows, {}, {}};
    // Side by side where all tokens use the same weights: of routed experts each has its own.
    if (quantised) factor.quant = quantise(program, x, layer->pairs.n_experts == 1);
    if (!layer->tiled) return factor;
    const int most = layer->pairs.most_tiles() * kTileTokens;
    if (quantised)
        factor.tiles = {static_cast<TokenGroup*>(program.passing(TokenTiles::bytes(most, x.dim))),
                        0, x.dim / 32};
    if (floating)
        factor.float_tiles = {static_cast<float*>(program.passing(FloatTiles::bytes(most, x.dim))),
                              0, x.dim};
    program.add(new FillGroupTiles(&layer->pairs, factor));
    return factor;
}

// What gate and up leave to down. Of few tokens each chunk of theirs quantises its own columns, but
// for those that are put side by side.
void add_hidden(Program& program, Layer* layer) {
    const Pairs& pairs = layer->pairs;
    const bool beside = pairs.n_experts == 1 && pairs.n_tokens > 2;
    layer->quantises = !layer->tiled && !layer->down.format->is_float && !beside;
    if (layer->quantises) {
        layer->hidden.quant = quant_rows(program, pairs.count(), layer->hidden_dim);
        return;
    }
    layer->hidden_rows =
        array<float>(program, static_cast<size_t>(pairs.count()) * layer->hidden_dim);
    const Heads hidden{layer->hidden_rows, layer->hidden_dim, 0, pairs.count(), 1,
                       layer->hidden_dim};
    const Matrix* down[] = {&layer->down};
    layer->hidden = factor_of(program, layer, hidden, nullptr, down, 1);
}

// Adds everything. Without weights, out is the result of each token's one pair.
void add_feed_forward(Program& program, Layer* layer, const Heads& x, const float* weights,
                      float* out) {
    Pairs& pairs = layer->pairs;
    pairs.groups = array<Group>(program, pairs.n_experts);
    pairs.token_of = array<int32_t>(program, pairs.count());
    pairs.position = array<int32_t>(program, pairs.count());
    program.add(new Sort(&pairs));
    const Matrix* first[] = {&layer->gate, layer->fused ? &layer->gate : &layer->up};
    layer->x = factor_of(program, layer, x, pairs.token_of, first, 2);
    program.add(new GateUp(layer));
    add_hidden(program, layer);
    if (weights && !layer->tiled && pairs.count() <= kFewPairs) {
        program.add(new DownCombine(layer, weights, out));
        return;
    }
    layer->results = out;
    if (weights)
        layer->results = array<float>(program, static_cast<size_t>(pairs.count()) * layer->out_dim);
    program.add(new Down(layer));
    if (weights) program.add(new Combine(layer, weights, out));
}

}  // namespace

void glu(Program& program, const GluArgs& args) {
    auto* layer = new (program.buffer(sizeof(Layer))) Layer{};
    layer->pairs.n_tokens = args.x.n_tokens;
    layer->pairs.n_used = layer->pairs.n_experts = 1;
    layer->tiled = args.x.n_tokens > kDotTokens;
    layer->gate = args.gate;
    layer->up = args.up;
    layer->down = args.down;
    layer->activation = args.activation;
    layer->hidden_dim = args.gate.rows.n_rows;
    layer->out_dim = args.down.rows.n_rows;
    float* weights = nullptr;
    if (args.scale) {
        weights = array<float>(program, args.x.n_tokens);
        program.add(new SharedWeights(args.x, args.scale, weights));
    }
    add_feed_forward(program, layer, args.x, weights, args.out);
    program.end_call();
}

void experts(Program& program, const ExpertsArgs& args) {
    auto* layer = new (program.buffer(sizeof(Layer))) Layer{};
    layer->pairs.ids = args.ids;
    layer->pairs.n_tokens = args.x.n_tokens;
    layer->pairs.n_used = args.n_used;
    layer->pairs.n_experts = args.n_experts;
    // Below two tokens an expert, unpacking panels costs more than it saves.
    layer->tiled =
        args.x.n_tokens > kDotTokens && args.x.n_tokens * args.n_used > 2 * args.n_experts;
    layer->gate = args.gate;
    layer->up = args.up;
    layer->down = args.down;
    layer->fused = !args.up.format;
    layer->activation = args.activation;
    layer->hidden_dim = args.down.rows.n_columns;
    layer->out_dim = args.down.rows.n_rows / args.n_experts;
    add_feed_forward(program, layer, args.x, args.weights, args.out);
    program.end_call();
}

}  // namespace octavo::OCTAVO_LEVEL

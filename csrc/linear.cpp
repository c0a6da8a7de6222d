// Weights times activations. Few tokens: dot products at the speed of memory, in one operation for
// all weights that share x. Many tokens: matmul.h.
#include "linear.h"

#include "chunks.h"
#include "level.h"
#include "matmul.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// Rows that `dot` takes together, at most.
constexpr int kRowsAtOnce = 16;

// About `wanted` rows for a chunk. `dot` reads rows from all over it together; where they lie about
// whole pages apart they contend for the same few places of the nearest cache.
int rows_of_chunk(int wanted, size_t row_bytes) {
    constexpr size_t kPage = 4096, kNear = 256;
    const int n = round_up(wanted, kRowsAtOnce);
    const size_t apart = n / kRowsAtOnce * row_bytes % kPage;
    return apart < kNear || apart > kPage - kNear ? n + kRowsAtOnce : n;
}

// At most kDotTokens tokens times all outputs; chunks of one output follow those of the other.
class DotProducts final : public Op {
  public:
    DotProducts(const LinearArgs& args, const QuantRows& quantised)
        : args_(args), quantised_(quantised) {}

    int prepare(int n_threads) override {
        double n_bytes = 0;
        for (int i = 0; i < args_.n_outputs; ++i) {
            const BlockRows& rows = args_.outputs[i].weight.rows;
            n_bytes += static_cast<double>(rows.row_bytes) * rows.n_rows;
        }
        const double chunk_bytes = stream_bytes(n_bytes, n_threads);
        int n_chunks = 0;
        for (int i = 0; i < args_.n_outputs; ++i) {
            const BlockRows& rows = args_.outputs[i].weight.rows;
            chunks_[i] = chunks_of(rows.n_rows, static_cast<double>(rows.row_bytes), chunk_bytes);
            chunks_[i].per_chunk = rows_of_chunk(chunks_[i].per_chunk, rows.row_bytes);
            n_chunks += chunks_[i].count();
        }
        return n_chunks;
    }

    void run(int chunk, Thread&) override {
        int i = 0;
        for (; chunk >= chunks_[i].count(); ++i) chunk -= chunks_[i].count();
        multiply(args_.outputs[i], chunks_[i].begin(chunk), chunks_[i].end(chunk));
    }

  private:
    void multiply(const LinearArgs::Output& output, int row0, int row1) const {
        const BlockRows& rows = output.weight.rows;
        const FormatKernels& format = *output.weight.format;
        const int n_tokens = args_.x.n_tokens;
        ask_for(rows, row0, row1);
        if (format.is_float)
            format.dot_floats(rows, row0, row1, args_.x.data, args_.x.token, 0, n_tokens,
                              output.out, rows.n_rows);
        else
            format.dot(rows, row0, row1, quantised_, 0, n_tokens, output.out, rows.n_rows);
        if (!output.bias) return;
        for (int t = 0; t < n_tokens; ++t)
            for (int r = row0; r < row1; ++r)
                output.out[static_cast<int64_t>(t) * rows.n_rows + r] += output.bias[r];
    }

    LinearArgs args_;
    QuantRows quantised_;
    Chunks chunks_[LinearArgs::kMost];
};

void multiply_many(Program& program, const LinearArgs& args, const QuantRows& quantised,
                   bool any_integers, bool any_floats) {
    TokenTiles tiles{};
    FloatTiles floats{};
    if (any_integers) tiles = tile_tokens(program, quantised);
    if (any_floats) floats = tile_floats(program, args.x);
    for (int i = 0; i < args.n_outputs; ++i) {
        const LinearArgs::Output& output = args.outputs[i];
        const int64_t stride = output.weight.rows.n_rows;
        if (output.weight.format->is_float)
            matmul_floats(program, output.weight, floats, output.bias, output.out, stride);
        else
            matmul(program, output.weight, tiles, output.bias, output.out, stride);
    }
}

}  // namespace

void ask_for(const BlockRows& rows, int row0, int row1) {
    constexpr size_t kFirstBytes = 512;
    const int step = (row1 - row0) / kRowsAtOnce;
    const size_t stream_bytes = step * rows.row_bytes;
    const size_t n_bytes = stream_bytes < kFirstBytes ? stream_bytes : kFirstBytes;
    for (int r = 0; r < kRowsAtOnce; ++r) {
        const uint8_t* stream = rows.data + (row0 + r * step) * rows.row_bytes;
        for (size_t i = 0; i < n_bytes; i += 64) OCTAVO_PREFETCH(stream + i);
    }
}

void linear(Program& program, const LinearArgs& args) {
    bool any_integers = false, any_floats = false;
    for (int i = 0; i < args.n_outputs; ++i)
        (args.outputs[i].weight.format->is_float ? any_floats : any_integers) = true;
    QuantRows quantised{};
    if (any_integers) quantised = quantise(program, args.x, true);
    if (args.x.n_tokens <= kDotTokens)
        program.add(new DotProducts(args, quantised));
    else
        multiply_many(program, args, quantised, any_integers, any_floats);
    program.end_call();
}

}  // namespace octavo::OCTAVO_LEVEL

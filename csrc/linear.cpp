// Weights times activations. Few tokens: dot products at the speed of memory, in one operation for
// all weights that share x. Many tokens: matmul.h.
#include "linear.h"

#include <cstring>

#include "chunks.h"
#include "level.h"
#include "matmul.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// Below this a group counts as zero: its inverse scale would overflow.
constexpr float kTiny = 1e-30f;

// The arrays of one row, for writing.
struct QuantRow {
    int8_t* q;
    float* scale;
    float* sum32;
    float* sum16;
    int32_t* whole32;
    int32_t* whole16;
};

QuantRow row_of(const QuantRows& rows, int row) {
    const int64_t at = static_cast<int64_t>(row) * rows.padded;
    return {const_cast<int8_t*>(rows.q) + at,
            const_cast<float*>(rows.scale) + at / 32,
            const_cast<float*>(rows.sum32) + at / 32,
            const_cast<float*>(rows.sum16) + at / 16,
            const_cast<int32_t*>(rows.whole32) + at / 32,
            const_cast<int32_t*>(rows.whole16) + at / 16};
}

// The arrays `n` groups further on.
QuantRow behind(const QuantRow& row, int n) {
    return {row.q + n * kGroup, row.scale + n,   row.sum32 + n,
            row.sum16 + 2 * n,  row.whole32 + n, row.whole16 + 2 * n};
}

// A few groups, at most 8.
template <int kGroups>
void quantise_groups(const float* x, const QuantRow& out) {
    F8 peaks[8];
    for (int g = 0; g < 8; ++g) {
        const float* p = x + (g < kGroups ? g : 0) * kGroup;
        peaks[g] =
            max(max(abs(load8(p)), abs(load8(p + 8))), max(abs(load8(p + 16)), abs(load8(p + 24))));
    }
    alignas(32) float peak[8], scale[8], inverse[8];
    store(peak, largest_of_each(peaks));
    for (int g = 0; g < 8; ++g)
        if (peak[g] < kTiny) peak[g] = 0.0f;
    store(scale, div(load8(peak), splat8(127.0f)));
    for (int g = 0; g < kGroups; ++g) inverse[g] = peak[g] == 0.0f ? 0.0f : 127.0f / peak[g];
    std::memcpy(out.scale, scale, kGroups * sizeof(float));
    I sums[8];
    for (int g = 0; g < kGroups; ++g) {
        const float* p = x + g * kGroup;
        const F8 factor = splat8(inverse[g]);
        const B q = to_bytes(mul(load8(p), factor), mul(load8(p + 8), factor),
                             mul(load8(p + 16), factor), mul(load8(p + 24), factor));
        store(out.q + g * kGroup, q);
        sums[g] = dot_unsigned(zero_integers(), splat_byte(1), q);
    }
    for (int g = kGroups; g < 8; ++g) sums[g] = sums[0];
    for (int g = 0; g < kGroups; g += 4) {
        int32_t halves[8];  // the first 16 of four groups, then the last 16 of them
        store(halves, half_sums(sums[g], sums[g + 1], sums[g + 2], sums[g + 3]));
        for (int i = 0; i < 4 && g + i < kGroups; ++i) {
            const float s = scale[g + i];
            const int32_t both = halves[i] + halves[i + 4];
            out.whole16[2 * (g + i)] = halves[i];
            out.whole16[2 * (g + i) + 1] = halves[i + 4];
            out.whole32[g + i] = both;
            out.sum16[2 * (g + i)] = s * static_cast<float>(halves[i]);
            out.sum16[2 * (g + i) + 1] = s * static_cast<float>(halves[i + 4]);
            out.sum32[g + i] = s * static_cast<float>(both);
        }
    }
}

constexpr int kSpanGroups = kSpan / kGroup;

void quantise_row(const float* x, int n_columns, QuantRow out) {
    for (int column = 0; column < n_columns; column += kSpan) {
        if (column + kSpan <= n_columns) {
            quantise_groups<kSpanGroups>(x + column, out);
        } else {
            float last[kSpan] = {};
            for (int i = 0; i < n_columns - column; ++i) last[i] = x[column + i];
            quantise_groups<kSpanGroups>(last, out);
        }
        out = behind(out, kSpanGroups);
    }
}

// A row side by side with the others.
void put_beside(const QuantRows& rows, int row, SideGroup* side) {
    const size_t at32 = static_cast<size_t>(row) * (rows.padded / 32), at16 = 2 * at32;
    for (int g = 0; g < rows.padded / 32; ++g) {
        SideGroup& out = side[g];
        for (int i = 0; i < 8; ++i)
            out.words[i][row] = read<uint32_t>(rows.q + (at32 + g) * 32 + i * 4);
        out.scale[row] = rows.scale[at32 + g];
        out.sum32[row] = rows.sum32[at32 + g];
        out.whole32[row] = rows.whole32[at32 + g];
        for (int half = 0; half < 2; ++half) {
            out.sum16[half][row] = rows.sum16[at16 + 2 * g + half];
            out.whole16[half][row] = rows.whole16[at16 + 2 * g + half];
        }
    }
}

class Quantise final : public Op {
  public:
    // `side`: where the rows are put side by side too, or nullptr.
    Quantise(const Heads& x, const QuantRows& out, SideGroup* side)
        : x_(x), out_(out), side_(side) {}

    int prepare(int) override {
        chunks_ = chunks_of(x_.n_tokens, x_.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            quantise_row(x_.at(t, 0), x_.dim, row_of(out_, t));
            if (side_) put_beside(out_, t, side_);
        }
    }

  private:
    Heads x_;
    QuantRows out_;
    SideGroup* side_;
    Chunks chunks_;
};

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

QuantRows quant_rows(Program& program, int n_rows, int n_columns) {
    const size_t n_bytes = quant_rows_bytes(n_rows, n_columns);
    void* memory = program.buffer(n_bytes);
    std::memset(memory, 0, n_bytes);  // what lies behind the last column counts as zeros
    return quant_rows_in(memory, n_rows, n_columns);
}

void quantise_columns(const float* x, int n_columns, const QuantRows& rows, int row, int column) {
    QuantRow out = behind(row_of(rows, row), column / kGroup);
    for (int i = 0; i < n_columns; i += kGroup, out = behind(out, 1))
        quantise_groups<1>(x + i, out);
}

QuantRows quantise(Program& program, const Heads& x, bool beside) {
    QuantRows rows = quant_rows(program, x.n_tokens, x.dim);
    SideGroup* side = nullptr;
    if (beside && x.n_tokens > 2 && x.n_tokens <= kDotTokens) {
        const size_t n_bytes = rows.padded / 32 * sizeof(SideGroup);
        side = static_cast<SideGroup*>(program.buffer(n_bytes));
        std::memset(side, 0, n_bytes);
    }
    program.add(new Quantise(x, rows, side));
    rows.side = side;
    return rows;
}

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
}

}  // namespace octavo::OCTAVO_LEVEL

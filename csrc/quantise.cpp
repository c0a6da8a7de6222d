// Activations rounded to int8, as the integer kernels read them (rows.h).
#include <cstring>

#include "chunks.h"
#include "lanes.h"
#include "level.h"
#include "linear.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// Below this a group counts as zero: its inverse scale would overflow.
constexpr float kTiny = 1e-30f;
// Of a scale: its product with kFloatBase is a number yet. No model has values of 127 times as
// much.
constexpr float kMostScale = 0x1p104f;
constexpr int kSpanGroups = kSpan / kGroup;

// The arrays of some groups of one row, for writing.
struct QuantGroups {
    int8_t* q;
    float* scale;
    float* sum32;
    float* sum16;
    int32_t* whole32;
    int32_t* whole16;
};

QuantGroups groups_from(const QuantRows& rows, int row, int column) {
    const int64_t at = static_cast<int64_t>(row) * rows.padded + column;
    return {const_cast<int8_t*>(rows.q) + at,
            const_cast<float*>(rows.scale) + at / 32,
            const_cast<float*>(rows.sum32) + at / 32,
            const_cast<float*>(rows.sum16) + at / 16,
            const_cast<int32_t*>(rows.whole32) + at / 32,
            const_cast<int32_t*>(rows.whole16) + at / 16};
}

// Scales of up to 8 groups, and what to multiply by instead of dividing by them.
struct Scales {
    alignas(32) float scale[kSpanGroups];
    alignas(32) float inverse[kSpanGroups];
};

// A scale without its last two bits: see kFloatBase.
float shortened(float x) {
    if (x > kMostScale) x = kMostScale;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= ~3u;
    std::memcpy(&x, &bits, sizeof bits);
    return x;
}

template <int kGroups>
Scales scales_of(const float* x) {
    F8 peaks[kSpanGroups];
    for (int g = 0; g < kSpanGroups; ++g) {
        const float* p = x + (g < kGroups ? g : 0) * kGroup;
        peaks[g] =
            max(max(abs(load8(p)), abs(load8(p + 8))), max(abs(load8(p + 16)), abs(load8(p + 24))));
    }
    Scales out;
    alignas(32) float peak[kSpanGroups];
    const F8 most = largest_of_each(peaks);
    store(peak, most);
    store(out.scale, div(most, splat8(127.0f)));
    store(out.inverse, div(splat8(127.0f), max(most, splat8(kTiny))));
    for (int g = 0; g < kSpanGroups; ++g) {
        out.scale[g] = peak[g] < kTiny ? 0.0f : shortened(out.scale[g]);
        out.inverse[g] = peak[g] < kTiny ? 0.0f : out.inverse[g];
    }
    return out;
}

template <int kGroups>
void quantise_groups(const float* x, const QuantGroups& out) {
    const Scales by = scales_of<kGroups>(x);
    I sums[kSpanGroups];
    for (int g = 0; g < kGroups; ++g) {
        const float* p = x + g * kGroup;
        const F8 factor = splat8(by.inverse[g]);
        const B q = to_bytes(mul(load8(p), factor), mul(load8(p + 8), factor),
                             mul(load8(p + 16), factor), mul(load8(p + 24), factor));
        store(out.q + g * kGroup, q);
        sums[g] = dot_unsigned(zero_integers(), splat_byte(1), q);
    }
    for (int g = kGroups; g < kSpanGroups; ++g) sums[g] = sums[0];
    int32_t halves[4][4];  // the first 16 of four groups, the last 16 of them, and so on
    store(halves[0], half_sums(sums[0], sums[1], sums[2], sums[3]));
    store(halves[2], half_sums(sums[4], sums[5], sums[6], sums[7]));
    int32_t whole16[2 * kSpanGroups], whole32[kSpanGroups];
    float sum16[2 * kSpanGroups], sum32[kSpanGroups];
    for (int g = 0; g < kSpanGroups; ++g) {
        const int32_t first = halves[g / 4 * 2][g % 4], last = halves[g / 4 * 2 + 1][g % 4];
        whole16[2 * g] = first;
        whole16[2 * g + 1] = last;
        whole32[g] = first + last;
        sum16[2 * g] = by.scale[g] * static_cast<float>(first);
        sum16[2 * g + 1] = by.scale[g] * static_cast<float>(last);
        sum32[g] = by.scale[g] * static_cast<float>(first + last);
    }
    constexpr size_t kBytes = kGroups * sizeof(float);
    std::memcpy(out.scale, by.scale, kBytes);
    std::memcpy(out.whole16, whole16, 2 * kBytes);
    std::memcpy(out.whole32, whole32, kBytes);
    std::memcpy(out.sum16, sum16, 2 * kBytes);
    std::memcpy(out.sum32, sum32, kBytes);
}

void quantise_span(const float* x, const QuantGroups& out) {
    quantise_groups<kSpanGroups>(x, out);
}

// Columns behind the last count as zeros.
void quantise_last(const float* x, int n_columns, const QuantGroups& out) {
    float last[kSpan] = {};
    std::memcpy(last, x, n_columns * sizeof *x);
    quantise_span(last, out);
}

#if defined(OCTAVO_LEVEL_avx512)

static_assert(kPanelRows == 2 * kSideRows);
constexpr uint8_t kNothing[32] = {};

// Calls put(i, words) for 32 bytes of each row at `first` and `second`: words[..] are the i-th four
// bytes of all of them. Row r lies r * step bytes on; those from n_rows on are zeros.
template <class Put>
OCTAVO_INLINE void turn_pair(const void* first, const void* second, size_t step, int n_rows,
                             const Put& put) {
    B rows[kPanelRows];
    WeightLanes words[8];
    for (int r = 0; r < kSideRows; ++r) {
        const bool exists = r < n_rows;
        const auto* a = static_cast<const uint8_t*>(first) + r * step;
        const auto* b = static_cast<const uint8_t*>(second) + r * step;
        rows[r] = load_bytes(exists ? a : kNothing);
        rows[r + kSideRows] = load_bytes(exists ? b : kNothing);
    }
    turn_rows(rows, words);
    for (int i = 0; i < 8; ++i) put(i, words[i]);
}

// A span of all rows side by side.
void put_beside(const QuantRows& rows, int span, SideGroup* side) {
    const QuantGroups in = groups_from(rows, 0, span * kSpan);
    const size_t n32 = rows.padded / 32 * sizeof(float), n16 = 2 * n32;
    SideGroup* out = side + span * kSpanGroups;
    for (int g = 0; g < kSpanGroups; g += 2)
        turn_pair(
            in.q + g * kGroup, in.q + (g + 1) * kGroup, rows.padded, rows.n_rows,
            [&](int i, WeightLanes w) { store_halves(out[g].words[i], out[g + 1].words[i], w); });
    turn_pair(in.scale, in.sum32, n32, rows.n_rows,
              [&](int g, WeightLanes w) { store_halves(out[g].scale, out[g].sum32, w); });
    for (int g = 0; g < kSpanGroups; ++g)
        store(out[g].base, mul(load8(out[g].scale), splat8(-kFloatBase)));
    turn_pair(in.whole32, in.whole32, n32, rows.n_rows,
              [&](int g, WeightLanes w) { store_halves(out[g].whole32, out[g].whole32, w); });
    turn_pair(in.sum16, in.sum16 + 8, n16, rows.n_rows, [&](int i, WeightLanes w) {
        store_halves(out[i / 2].sum16[i % 2], out[i / 2 + 4].sum16[i % 2], w);
    });
    turn_pair(in.whole16, in.whole16 + 8, n16, rows.n_rows, [&](int i, WeightLanes w) {
        store_halves(out[i / 2].whole16[i % 2], out[i / 2 + 4].whole16[i % 2], w);
    });
}

#else
void put_beside(const QuantRows&, int, SideGroup*) {}
#endif

// An item is a span of some rows.
class Quantise final : public Op {
  public:
    // `side`: where the rows are put side by side too, or nullptr.
    Quantise(const Heads& x, const QuantRows& out, SideGroup* side)
        : x_(x), out_(out), side_(side), n_spans_(out.padded / kSpan) {}

    int prepare(int) override {
        const int n_blocks = (x_.n_tokens + kSideRows - 1) / kSideRows;
        const int block = x_.n_tokens < kSideRows ? x_.n_tokens : kSideRows;
        chunks_ = chunks_of(n_blocks * n_spans_, block * kSpan, kQuantiseWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int i = chunks_.begin(chunk); i < chunks_.end(chunk); ++i) {
            const int first = i / n_spans_ * kSideRows, span = i % n_spans_;
            const int end = first + kSideRows < x_.n_tokens ? first + kSideRows : x_.n_tokens;
            const int column = span * kSpan, left = x_.dim - column;
            for (int row = first; row < end; ++row) {
                const QuantGroups out = groups_from(out_, row, column);
                const float* x = x_.at(row, 0) + column;
                left >= kSpan ? quantise_span(x, out) : quantise_last(x, left, out);
            }
            if (side_) put_beside(out_, span, side_);
        }
    }

  private:
    static constexpr double kQuantiseWork = kSmallWork / 2;

    Heads x_;
    QuantRows out_;
    SideGroup* side_;
    int n_spans_;
    Chunks chunks_;
};

}  // namespace

QuantRows quant_rows(Program& program, int n_rows, int n_columns) {
    const size_t n_bytes = quant_rows_bytes(n_rows, n_columns);
    void* memory = program.buffer(n_bytes);
    std::memset(memory, 0, n_bytes);  // what lies behind the last column counts as zeros
    return quant_rows_in(memory, n_rows, n_columns);
}

void quantise_columns(const float* x, int n_columns, const QuantRows& rows, int row, int column) {
    for (int i = 0; i < n_columns; i += kGroup)
        quantise_groups<1>(x + i, groups_from(rows, row, column + i));
}

QuantRows quantise(Program& program, const Heads& x, bool beside) {
    QuantRows rows =
        quant_rows_in(program.passing(quant_rows_bytes(x.n_tokens, x.dim)), x.n_tokens, x.dim);
    SideGroup* side = nullptr;
    if (beside && x.n_tokens > 2 && x.n_tokens <= kDotTokens)
        side = static_cast<SideGroup*>(program.passing(rows.padded / 32 * sizeof(SideGroup)));
    program.add(new Quantise(x, rows, side));
    rows.side = side;
    return rows;
}

}  // namespace octavo::OCTAVO_LEVEL

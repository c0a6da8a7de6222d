// What one instruction-set level offers. The same sources are compiled once per level, each into
// a namespace of its own, and dispatch.cpp picks the table that the processor can run.
//
// Files compiled per level use no standard containers, algorithms or other templates of the
// standard library: the linker keeps one copy of such functions, which may then be the one with
// instructions that an older processor lacks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "op.h"
#include "ops.h"
#include "rows.h"

namespace octavo {

class Program;

constexpr int kMaxColumns = kSideRows;  // tokens that `dot` takes at once

// One block format at one level.
struct FormatKernels {
    const char* name;    // ggml's, lower case: "q4_k"
    int block_elements;  // weights in a block
    int block_bytes;
    bool is_float;    // f32, f16, bf16: `dot_floats` is set and `dot` is not
    int scale_group;  // weights that share a scale: 32 or 16 (0: is_float)
    bool has_offset;  // w = scale * (value - zero) + offset; without it offsets are 0
    int most;         // values are 0..most; 0: they are int8
    int zero;

    // y[t * y_stride + r] = row r . x row t, for rows row0 <= r < row1 and t0 <= t < t1,
    // t1 - t0 <= kMaxColumns. A result depends on its row and token only.
    void (*dot)(const BlockRows& w, int row0, int row1, const QuantRows& x, int t0, int t1,
                float* y, int64_t y_stride);
    // The same for float formats: row t of x at x + t * x_stride.
    void (*dot_floats)(const BlockRows& w, int row0, int row1, const float* x, int64_t x_stride,
                       int t0, int t1, float* y, int64_t y_stride);
    // Weights of one row as float32, n_columns of them.
    void (*unpack)(const uint8_t* row, int n_columns, float* out);
    // Unpacks the rows of a panel from row0 (zeros from w.n_rows on) and columns column0 ..
    // column0 + n_columns - 1 (multiples of kSpan but for the row's end): see panel.h.
    void (*pack_panel)(const BlockRows& w, int row0, int column0, int n_columns, void* panel);
};

// One cache format at one level; attend.cpp says what its functions do.
struct CacheKernels;

// Each operation's function adds what is needed to the program.
struct Kernels {
    const char* level;
    const FormatKernels* const* formats;       // ends with nullptr
    const CacheKernels* const* cache_formats;  // ends with nullptr
    void (*embed)(Program&, const EmbedArgs&);
    void (*norm)(Program&, const NormArgs&);
    void (*linear)(Program&, const LinearArgs&);
    void (*rope)(Program&, const RopeArgs&);
    void (*attend)(Program&, const AttendArgs&);
    void (*recur)(Program&, const RecurArgs&);
    void (*route)(Program&, const RouteArgs&);
    void (*glu)(Program&, const GluArgs&);
    void (*experts)(Program&, const ExpertsArgs&);
    void (*add)(Program&, const float* x, const float* y, int64_t n, float* out);
    void (*concat)(Program&, const Heads& x, const Heads& y, float* out);
    void (*take)(Program&, const Heads& x, const int32_t* rows, int n_rows, float* out);
    void (*softcap)(Program&, const float* x, int64_t n, float cap, float* out);
    // Limits of the processor (limits.cpp). `sink`: one entry a MiB, or one a chunk. The last two
    // return the operations that a run does, multiplications and additions counted singly.
    void (*read_memory)(Program&, const uint8_t* data, int64_t n_bytes, int64_t* sink);
    double (*dot_peak)(Program&, int64_t n_rounds, int n_chunks, float* sink);
    double (*fma_peak)(Program&, int64_t n_rounds, int n_chunks, float* sink);
};

}  // namespace octavo

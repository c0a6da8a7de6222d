// The Python module: check shapes, release the GIL, call. No maths here.
#include "bindings.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "dispatch.h"
#include "program.h"

using namespace octavo;
using namespace nb::literals;

namespace {

// A weight's bytes with the kernels of its format; keeps the bytes alive.
struct WeightHandle {
    Matrix matrix;
    Bytes data;
};

const FormatKernels* format_named(const std::string& name) {
    for (const FormatKernels* const* f = kernels().formats; *f; ++f)
        if (name == (*f)->name) return *f;
    wrong("no fast kernel for block format " + name);
}

const CacheKernels* cache_format_at(int index) {
    return kernels().cache_formats[index];
}

WeightHandle make_weight(Bytes data, const std::string& format, int64_t n_rows, int64_t n_columns) {
    const FormatKernels* f = format_named(format);
    if (n_columns % f->block_elements != 0) wrong("columns are not whole blocks of " + format);
    const size_t row_bytes = static_cast<size_t>(n_columns / f->block_elements) * f->block_bytes;
    if (data.size() != row_bytes * n_rows) wrong("a " + format + " weight of another size");
    Matrix matrix{f,
                  {data.data(), row_bytes, static_cast<int>(n_rows), static_cast<int>(n_columns)}};
    return {matrix, std::move(data)};
}

Activation activation_named(const std::string& kind) {
    if (kind == "silu") return Activation::kSilu;
    if (kind == "gelu") return Activation::kGelu;
    wrong("activation " + kind + ": silu or gelu expected");
}

// The arrays of octavo.kv.batch.Batch that the kernels read.
Sequences sequences(const Ids& starts, const Ids& n_past, const Ids& pages, const Ids& slots,
                    const Ids& state_slots, int n_tokens) {
    const size_t n = n_past.size();
    require(pages.ndim() == 2 && pages.shape(0) == n, "pages: (S, P) expected");
    return {static_cast<int>(n),
            ids(starts, n + 1, "starts"),
            n_past.data(),
            pages.data(),
            static_cast<int64_t>(pages.shape(1)),
            ids(slots, n, "slots"),
            ids(state_slots, n_tokens, "state_slots")};
}

void add_embed(Program& program, const WeightHandle& table, const Ids& tokens, float scale,
               const FloatsOut& out) {
    const size_t n = tokens.size();
    kernels().embed(program, {table.matrix, tokens.data(), static_cast<int>(n), scale,
                              floats(out, n * table.matrix.rows.n_columns, "out")});
}

void add_norm(Program& program, const Floats& x, const Floats& weight, float eps,
              const std::optional<Floats>& residual, const std::optional<FloatsOut>& sum,
              const FloatsOut& out) {
    NormArgs args{};
    args.x = heads(x, "x");
    args.weight = floats(weight, args.x.dim, "weight");
    args.eps = eps;
    if (residual) {
        require(sum.has_value(), "norm: a residual needs an array for the sum");
        args.residual = floats(*residual, x.size(), "residual");
        args.sum = floats(*sum, x.size(), "sum");
    }
    args.out = floats(out, x.size(), "out");
    kernels().norm(program, args);
}

void add_linear(Program& program, const Floats& x, const std::vector<const WeightHandle*>& weights,
                const std::vector<std::optional<Floats>>& biases,
                const std::vector<FloatsOut>& outs) {
    LinearArgs args{};
    args.x = heads(x, "x");
    require(x.ndim() == 2, "x: (T, D) expected");
    require(weights.size() <= LinearArgs::kMost, "linear: too many weights in one call");
    args.n_outputs = static_cast<int>(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
        const Matrix& m = weights[i]->matrix;
        require(m.rows.n_columns == args.x.dim, "linear: x and weight differ in columns");
        const size_t n = static_cast<size_t>(args.x.n_tokens) * m.rows.n_rows;
        args.outputs[i] = {m, biases[i] ? floats(*biases[i], m.rows.n_rows, "bias") : nullptr,
                           floats(outs[i], n, "out")};
    }
    kernels().linear(program, args);
}

void add_rope(Program& program, const Floats& x, const Ids& positions, const Floats& frequencies,
              bool adjacent, float magnitude, const FloatsOut& out) {
    RopeArgs args{};
    args.x = heads(x, "x");
    args.positions = ids(positions, args.x.n_tokens, "positions");
    args.n_frequencies = static_cast<int>(frequencies.size());
    require(2 * args.n_frequencies <= args.x.dim, "rope: more frequencies than pairs");
    args.frequencies = contiguous(frequencies, "frequencies");
    args.adjacent = adjacent;
    args.magnitude = magnitude;
    args.out = floats(out, x.size(), "out");
    kernels().rope(program, args);
}

void add_attend(Program& program, const Floats& q, const Floats& k, const Floats& v,
                const BytesOut& cache, int format, float scale, int window, const Ids& starts,
                const Ids& n_past, const Ids& pages, const Ids& slots, const Ids& state_slots,
                const std::optional<Floats>& gate, const FloatsOut& out) {
    AttendArgs args{};
    args.q = heads(q, "q");
    args.k = heads(k, "k");
    args.v = heads(v, "v");
    require(args.k.n_heads == args.v.n_heads && args.q.dim == args.k.dim &&
                args.q.n_heads % args.k.n_heads == 0,
            "attend: q, k and v do not fit together");
    require(args.q.n_tokens == args.k.n_tokens && args.q.n_tokens == args.v.n_tokens,
            "attend: q, k and v differ in tokens");
    require(cache.ndim() == 2, "cache: (pages, page bytes) expected");
    args.cache = cache.data();
    args.page_bytes = static_cast<int64_t>(cache.shape(1));
    args.format = cache_format_at(format);
    args.sequences = sequences(starts, n_past, pages, slots, state_slots, args.q.n_tokens);
    args.scale = scale;
    args.window = window;
    const size_t n = static_cast<size_t>(args.q.n_tokens) * args.q.n_heads * args.v.dim;
    if (gate) {
        args.gate = heads(*gate, "gate");
        require(gate->size() == n, "gate: (T, H, dv) expected");
    }
    args.out = floats(out, n, "out");
    kernels().attend(program, args);
}

struct RecurShape {
    int n_key_heads, n_value_heads, key_dim, value_dim, conv_kernel;
    bool tiled;
};

void add_recur(Program& program, const Floats& qkv, const Floats& z, const Floats& alpha,
               const Floats& beta, const Floats& conv_weight, const Floats& a, const Floats& dt,
               const Floats& norm_weight, float eps, const RecurShape& shape, const FloatsOut& conv,
               const FloatsOut& state, const Ids& starts, const Ids& n_past, const Ids& pages,
               const Ids& slots, const Ids& state_slots, const FloatsOut& out) {
    const size_t n_channels = 2 * static_cast<size_t>(shape.n_key_heads) * shape.key_dim +
                              static_cast<size_t>(shape.n_value_heads) * shape.value_dim;
    RecurArgs args{};
    args.qkv = heads(qkv, "qkv");
    args.z = heads(z, "z");
    args.alpha = heads(alpha, "alpha");
    args.beta = heads(beta, "beta");
    require(qkv.ndim() == 2 && args.qkv.dim == static_cast<int>(n_channels),
            "qkv: (T, channels) expected");
    const int n_tokens = args.qkv.n_tokens;
    require(args.z.n_tokens == n_tokens && args.z.dim == shape.n_value_heads * shape.value_dim,
            "z: (T, V * dv) expected");
    require(args.alpha.dim == shape.n_value_heads && args.beta.dim == shape.n_value_heads &&
                args.alpha.n_tokens == n_tokens && args.beta.n_tokens == n_tokens,
            "alpha and beta: (T, V) expected");
    args.conv_weight = floats(conv_weight, n_channels * shape.conv_kernel, "conv_weight");
    args.a = floats(a, shape.n_value_heads, "a");
    args.dt = floats(dt, shape.n_value_heads, "dt");
    args.norm_weight = floats(norm_weight, shape.value_dim, "norm");
    args.eps = eps;
    args.n_key_heads = shape.n_key_heads;
    args.n_value_heads = shape.n_value_heads;
    args.key_dim = shape.key_dim;
    args.value_dim = shape.value_dim;
    args.conv_kernel = shape.conv_kernel;
    args.tiled = shape.tiled;
    args.conv = contiguous(conv, "conv");
    args.state = contiguous(state, "state");
    args.sequences = sequences(starts, n_past, pages, slots, state_slots, n_tokens);
    args.out = floats(out, z.size(), "out");
    kernels().recur(program, args);
}

void add_route(Program& program, const Floats& x, const WeightHandle& gate, int n_used,
               bool sigmoid, bool normalise, float scale, const IdsOut& chosen,
               const FloatsOut& weights) {
    const Heads rows = heads(x, "x");
    const size_t n = static_cast<size_t>(rows.n_tokens) * n_used;
    require(n_used >= 1 && n_used <= gate.matrix.rows.n_rows, "route: more experts than there are");
    require(gate.matrix.rows.n_columns == rows.dim, "route: x and gate differ in columns");
    kernels().route(program, {rows, gate.matrix, n_used, sigmoid, normalise, scale,
                              ids(chosen, n, "ids"), floats(weights, n, "weights")});
}

void add_glu(Program& program, const Floats& x, const WeightHandle& gate, const WeightHandle& up,
             const WeightHandle& down, const std::string& kind, const std::optional<Floats>& scale,
             const FloatsOut& out) {
    GluArgs args{};
    args.x = heads(x, "x");
    args.gate = gate.matrix;
    args.up = up.matrix;
    args.down = down.matrix;
    require(args.gate.rows.n_columns == args.x.dim && args.up.rows.n_columns == args.x.dim &&
                args.gate.rows.n_rows == args.up.rows.n_rows &&
                args.down.rows.n_columns == args.gate.rows.n_rows,
            "glu: gate, up and down do not fit together");
    args.activation = activation_named(kind);
    if (scale) args.scale = floats(*scale, args.x.dim, "scale");
    const size_t n = static_cast<size_t>(args.x.n_tokens) * args.down.rows.n_rows;
    args.out = floats(out, n, "out");
    kernels().glu(program, args);
}

void add_experts(Program& program, const Floats& x, const WeightHandle& gate,
                 const WeightHandle* up, const WeightHandle& down, int n_experts,
                 const std::string& kind, const Ids& chosen, const Floats& weights,
                 const FloatsOut& out) {
    ExpertsArgs args{};
    args.x = heads(x, "x");
    args.gate = gate.matrix;
    if (up) args.up = up->matrix;
    args.down = down.matrix;
    args.n_experts = n_experts;
    args.activation = activation_named(kind);
    require(chosen.ndim() == 2 && static_cast<int>(chosen.shape(0)) == args.x.n_tokens,
            "ids: (T, k) expected");
    args.n_used = static_cast<int>(chosen.shape(1));
    const int gate_rows = gate.matrix.rows.n_rows / n_experts;
    require((up ? gate_rows : gate_rows / 2) == args.down.rows.n_columns &&
                args.gate.rows.n_columns == args.x.dim,
            "experts: gate, up and down do not fit together");
    args.ids = chosen.data();
    args.weights = floats(weights, chosen.size(), "weights");
    const size_t n = static_cast<size_t>(args.x.n_tokens) * (args.down.rows.n_rows / n_experts);
    args.out = floats(out, n, "out");
    kernels().experts(program, args);
}

void add_concat(Program& program, const Floats& x, const Floats& y, const FloatsOut& out) {
    const Heads a = heads(x, "x"), b = heads(y, "y");
    require(a.n_tokens == b.n_tokens, "concat: x and y differ in tokens");
    kernels().concat(program, a, b, floats(out, x.size() + y.size(), "out"));
}

void add_take(Program& program, const Floats& x, const Ids& rows, const FloatsOut& out) {
    const Heads a = heads(x, "x");
    kernels().take(program, a, rows.data(), static_cast<int>(rows.size()),
                   floats(out, rows.size() * a.dim, "out"));
}

void add_read_memory(Program& program, const Bytes& data,
                     const nb::ndarray<int64_t, nb::device::cpu, nb::c_contig>& sink) {
    require(data.size() % (1 << 20) == 0 && sink.size() == data.size() >> 20,
            "read_memory: whole MiB and one entry for each expected");
    kernels().read_memory(program, data.data(), static_cast<int64_t>(data.size()), sink.data());
}

template <auto peak>
double add_peak(Program& program, int64_t n_rounds, const FloatsOut& sink) {
    return (kernels().*peak)(program, n_rounds, static_cast<int>(sink.size()),
                             contiguous(sink, "sink"));
}

std::vector<std::string> level_names() {
    std::vector<std::string> names;
    for (const Kernels* const* level = runnable_levels(); *level; ++level)
        names.emplace_back((*level)->level);
    return names;
}

std::vector<std::string> format_names() {
    std::vector<std::string> names;
    for (const FormatKernels* const* f = kernels().formats; *f; ++f) names.emplace_back((*f)->name);
    return names;
}

auto array(const char* name) {
    return nb::arg(name).noconvert();
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // weights in use at exit are no fault
    m.doc() = "The native core: kernels for this processor, threads, recorded programs.";
    m.def("levels", level_names, "Instruction-set levels that this processor runs, best last.");
    m.def("level", [] { return std::string(kernels().level); }, "The level in force.");
    m.def(
        "use_level",
        [](const std::string& name) {
            if (!use_level(name.c_str())) wrong("level " + name + " cannot run here");
        },
        nb::arg("name"), "Use another level; weights and programs made before keep theirs.");
    m.def("formats", format_names, "Block formats with kernels, at the level in force.");
    m.def(
        "cache_formats",
        [] {
            std::vector<std::string> names;
#define FORMAT(stem) names.emplace_back(#stem);
#include "cache_formats.inc"
#undef FORMAT
            return names;
        },
        "Cache formats with kernels; `attend` takes an index into this list.");
    bind_memory(m);
    bind_text(m);

    nb::class_<Pool>(m, "Pool", "Worker threads.")
        .def(nb::init<int>(), nb::arg("n_threads"))
        .def_prop_ro("n_threads", &Pool::n_threads);

    nb::class_<WeightHandle>(m, "Weight", "A matrix of native block bytes.")
        .def(
            "__init__",
            [](WeightHandle* self, Bytes data, const std::string& format, int64_t n_rows,
               int64_t n_columns) {
                new (self) WeightHandle(make_weight(std::move(data), format, n_rows, n_columns));
            },
            nb::arg("data"), nb::arg("format"), nb::arg("n_rows"), nb::arg("n_columns"));

    nb::class_<RecurShape>(m, "RecurShape", "The shape of a gated delta-rule layer.")
        .def(
            "__init__",
            [](RecurShape* self, int n_key_heads, int n_value_heads, int key_dim, int value_dim,
               int conv_kernel, bool tiled) {
                new (self)
                    RecurShape{n_key_heads, n_value_heads, key_dim, value_dim, conv_kernel, tiled};
            },
            nb::arg("n_key_heads"), nb::arg("n_value_heads"), nb::arg("key_dim"),
            nb::arg("value_dim"), nb::arg("conv_kernel"), nb::arg("tiled"));

    nb::class_<Program> program(m, "Program", "Operations in order; arrays must outlive it.");
    bind_arrays(program);
    program.def(nb::init<>())
        .def("__len__", &Program::size)
        .def("run", &Program::run, nb::arg("pool"), nb::call_guard<nb::gil_scoped_release>())
        .def("run_from", &Program::run_from, nb::arg("pool"), nb::arg("first"),
             nb::call_guard<nb::gil_scoped_release>())
        // Arrays are never converted: a program keeps pointers to the caller's own.
        .def("embed", add_embed, "table"_a, array("ids"), "scale"_a, array("out"))
        .def("norm", add_norm, array("x"), array("weight"), "eps"_a, array("residual").none(),
             array("sum").none(), array("out"))
        .def("linear", add_linear, array("x"), "weights"_a, array("biases"), array("outs"))
        .def("rope", add_rope, array("x"), array("positions"), array("frequencies"), "adjacent"_a,
             "magnitude"_a, array("out"))
        .def("attend", add_attend, array("q"), array("k"), array("v"), array("cache"), "format"_a,
             "scale"_a, "window"_a, array("starts"), array("n_past"), array("pages"),
             array("slots"), array("state_slots"), array("gate").none(), array("out"))
        .def("recur", add_recur, array("qkv"), array("z"), array("alpha"), array("beta"),
             array("conv_weight"), array("a"), array("dt"), array("norm"), "eps"_a, "shape"_a,
             array("conv"), array("state"), array("starts"), array("n_past"), array("pages"),
             array("slots"), array("state_slots"), array("out"))
        .def("route", add_route, array("x"), "gate"_a, "n_used"_a, "sigmoid"_a, "normalise"_a,
             "scale"_a, array("ids"), array("weights"))
        .def("glu", add_glu, array("x"), "gate"_a, "up"_a, "down"_a, "kind"_a,
             array("scale").none(), array("out"))
        .def("experts", add_experts, array("x"), "gate"_a, "up"_a.none(), "down"_a, "n_experts"_a,
             "kind"_a, array("ids"), array("weights"), array("out"))
        .def(
            "add",
            [](Program& p, const Floats& x, const Floats& y, const FloatsOut& out) {
                kernels().add(p, contiguous(x, "x"), floats(y, x.size(), "y"),
                              static_cast<int64_t>(x.size()), floats(out, x.size(), "out"));
            },
            array("x"), array("y"), array("out"))
        .def("concat", add_concat, array("x"), array("y"), array("out"))
        .def("take", add_take, array("x"), array("rows"), array("out"))
        .def(
            "softcap",
            [](Program& p, const Floats& x, float cap, const FloatsOut& out) {
                kernels().softcap(p, contiguous(x, "x"), static_cast<int64_t>(x.size()), cap,
                                  floats(out, x.size(), "out"));
            },
            array("x"), "cap"_a, array("out"))
        .def("read_memory", add_read_memory, array("data"), array("sink"),
             "Read `data` (whole MiB) once; `sink` holds 8 bytes a MiB.")
        .def("dot_peak", add_peak<&Kernels::dot_peak>, "n_rounds"_a, array("sink"),
             "Int8 dot products, one chunk an entry of `sink`; returns the operations.")
        .def("fma_peak", add_peak<&Kernels::fma_peak>, "n_rounds"_a, array("sink"),
             "Float multiply-adds, one chunk an entry of `sink`; returns the operations.");
    bind_handoff(m);
}

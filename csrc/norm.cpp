// RMS norm over the last axis, with the residual added first where there is one.
#include <cmath>

#include "chunks.h"
#include "kernels.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// sum = x + residual; returns the sum of squares of what is to be normalised.
float add_and_square(const float* x, const float* residual, float* sum, int n) {
    F squares = zero();
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        F v = load(x + i);
        if (residual) {
            v = add(v, load(residual + i));
            store(sum + i, v);
        }
        squares = fma(v, v, squares);
    }
    float rest = 0;
    for (; i < n; ++i) {
        const float v = residual ? x[i] + residual[i] : x[i];
        if (residual) sum[i] = v;
        rest += v * v;
    }
    return octavo::OCTAVO_LEVEL::sum(squares) + rest;
}

void scale_row(const float* x, const float* weight, float factor, float* out, int n) {
    const F factors = splat(factor);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store(out + i, mul(mul(load(x + i), factors), load(weight + i)));
    for (; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

class Norm final : public Op {
  public:
    explicit Norm(const NormArgs& args) : args_(args) {}

    int prepare(int) override {
        chunks_ = chunks_of(args_.x.n_tokens * args_.x.n_heads, args_.x.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        const Heads& x = args_.x;
        for (int row = chunks_.begin(chunk); row < chunks_.end(chunk); ++row) {
            const int64_t at = static_cast<int64_t>(row) * x.dim;
            const float* in = x.at(row / x.n_heads, row % x.n_heads);
            const float* residual = args_.residual ? args_.residual + at : nullptr;
            float* sum = args_.residual ? args_.sum + at : nullptr;
            const float squares = add_and_square(in, residual, sum, x.dim);
            const float factor = 1.0f / std::sqrt(squares / x.dim + args_.eps);
            scale_row(residual ? sum : in, args_.weight, factor, args_.out + at, x.dim);
        }
    }

  private:
    NormArgs args_;
    Chunks chunks_;
};

}  // namespace

void norm(Program& program, const NormArgs& args) {
    program.add(new Norm(args));
}

}  // namespace octavo::OCTAVO_LEVEL

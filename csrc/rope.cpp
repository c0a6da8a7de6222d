// Rotary positions. The sines of a token are computed once and serve all its heads.
#include <cmath>
#include <cstring>

#include "chunks.h"
#include "kernels.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

void rotate_adjacent(const float* x, const float* cosines, const float* sines, int n, float* out) {
    for (int i = 0; i < n; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        out[2 * i] = a * cosines[i] - b * sines[i];
        out[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
}

void rotate_halves(const float* x, const float* cosines, const float* sines, int n, float* out) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const F a = load(x + i), b = load(x + n + i);
        const F c = load(cosines + i), s = load(sines + i);
        store(out + i, sub(mul(a, c), mul(b, s)));
        store(out + n + i, add(mul(a, s), mul(b, c)));
    }
    for (; i < n; ++i) {
        const float a = x[i], b = x[n + i];
        out[i] = a * cosines[i] - b * sines[i];
        out[n + i] = a * sines[i] + b * cosines[i];
    }
}

// Cosines and sines of all tokens: [T][2][n]. Filled anew in every run.
class Angles final : public Op {
  public:
    Angles(const RopeArgs& args, float* out) : args_(args), out_(out) {}

    int prepare(int) override {
        // A sine takes as long as some tens of floats.
        chunks_ = chunks_of(args_.x.n_tokens, 64.0 * args_.n_frequencies, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        const int n = args_.n_frequencies;
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            float* cosines = out_ + static_cast<int64_t>(t) * 2 * n;
            float* sines = cosines + n;
            for (int i = 0; i < n; ++i) {
                // In double: at position 262,144 a float angle is wrong by 0.01.
                const double angle = args_.positions[t] * static_cast<double>(args_.frequencies[i]);
                cosines[i] = static_cast<float>(std::cos(angle)) * args_.magnitude;
                sines[i] = static_cast<float>(std::sin(angle)) * args_.magnitude;
            }
        }
    }

  private:
    RopeArgs args_;
    float* out_;
    Chunks chunks_;
};

class Rope final : public Op {
  public:
    Rope(const RopeArgs& args, const float* angles) : args_(args), angles_(angles) {}

    int prepare(int) override {
        chunks_ = chunks_of(args_.x.n_tokens, args_.x.n_heads * args_.x.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        const int n = args_.n_frequencies;
        const Heads& x = args_.x;
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            const float* cosines = angles_ + static_cast<int64_t>(t) * 2 * n;
            for (int h = 0; h < x.n_heads; ++h) {
                float* out = args_.out + (static_cast<int64_t>(t) * x.n_heads + h) * x.dim;
                (args_.adjacent ? rotate_adjacent : rotate_halves)(x.at(t, h), cosines, cosines + n,
                                                                   n, out);
                std::memcpy(out + 2 * n, x.at(t, h) + 2 * n, (x.dim - 2 * n) * sizeof(float));
            }
        }
    }

  private:
    RopeArgs args_;
    const float* angles_;
    Chunks chunks_;
};

}  // namespace

void rope(Program& program, const RopeArgs& args) {
    // All layers turn by the same angles: they are computed where they are first needed.
    const size_t n_bytes = sizeof(float) * 2 * args.n_frequencies * args.x.n_tokens;
    const SharedKey key{args.positions, args.frequencies, args.magnitude};
    bool is_new = false;
    auto* angles = static_cast<float*>(program.shared(key, n_bytes, &is_new));
    if (is_new) program.add(new Angles(args, angles));
    program.add(new Rope(args, angles));
}

}  // namespace octavo::OCTAVO_LEVEL

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

class Rope final : public Op {
  public:
    explicit Rope(const RopeArgs& args) : args_(args) {}

    int prepare(int) override {
        chunks_ = chunks_of(args_.x.n_tokens, args_.x.n_heads * args_.x.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread& thread) override {
        const int n = args_.n_frequencies;
        auto* cosines = static_cast<float*>(thread.scratch(2 * n * sizeof(float)));
        float* sines = cosines + n;
        const Heads& x = args_.x;
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            for (int i = 0; i < n; ++i) {
                // In double: at position 262,144 a float angle is wrong by 0.01.
                const double angle = args_.positions[t] * static_cast<double>(args_.frequencies[i]);
                cosines[i] = static_cast<float>(std::cos(angle)) * args_.magnitude;
                sines[i] = static_cast<float>(std::sin(angle)) * args_.magnitude;
            }
            for (int h = 0; h < x.n_heads; ++h) {
                float* out = args_.out + (static_cast<int64_t>(t) * x.n_heads + h) * x.dim;
                (args_.adjacent ? rotate_adjacent : rotate_halves)(x.at(t, h), cosines, sines, n,
                                                                   out);
                std::memcpy(out + 2 * n, x.at(t, h) + 2 * n, (x.dim - 2 * n) * sizeof(float));
            }
        }
    }

  private:
    RopeArgs args_;
    Chunks chunks_;
};

}  // namespace

void rope(Program& program, const RopeArgs& args) {
    program.add(new Rope(args));
}

}  // namespace octavo::OCTAVO_LEVEL

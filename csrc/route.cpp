// Which experts a token uses: router logits, their probabilities, the best k.
#include <cmath>

#include "chunks.h"
#include "kernels.h"
#include "level.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// The sum of chosen weights is kept away from zero by this much (float16's smallest normal).
constexpr float kSmallestSum = 6.103515625e-5f;

void softmax(float* p, int n) {
    float largest_logit = p[0];
    for (int i = 1; i < n; ++i) largest_logit = p[i] > largest_logit ? p[i] : largest_logit;
    float total = 0;
    for (int i = 0; i < n; ++i) total += p[i] = std::exp(p[i] - largest_logit);
    for (int i = 0; i < n; ++i) p[i] /= total;
}

class Choose final : public Op {
  public:
    Choose(const RouteArgs& args, float* logits)
        : args_(args), logits_(logits), n_experts_(args.gate.rows.n_rows) {}

    int prepare(int) override {
        chunks_ = chunks_of(args_.x.n_tokens, n_experts_ * args_.n_used / 4.0, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            float* p = logits_ + static_cast<int64_t>(t) * n_experts_;
            if (args_.sigmoid)
                for (int i = 0; i < n_experts_; ++i) p[i] = 1.0f / (1.0f + std::exp(-p[i]));
            else
                softmax(p, n_experts_);
            choose(p, args_.ids + t * args_.n_used, args_.weights + t * args_.n_used);
        }
    }

  private:
    // The best k of p by insertion into a short sorted list: lower ids win ties.
    void choose(const float* p, int32_t* ids, float* weights) const {
        int n = 0;
        for (int i = 0; i < n_experts_; ++i) {
            if (n == args_.n_used && !(p[i] > weights[n - 1])) continue;
            int at = n < args_.n_used ? n++ : n - 1;
            for (; at > 0 && p[i] > weights[at - 1]; --at) {
                weights[at] = weights[at - 1];
                ids[at] = ids[at - 1];
            }
            weights[at] = p[i];
            ids[at] = i;
        }
        float factor = args_.scale;
        if (args_.normalise) {
            float total = 0;
            for (int i = 0; i < n; ++i) total += weights[i];
            factor /= total > kSmallestSum ? total : kSmallestSum;
        }
        for (int i = 0; i < n; ++i) weights[i] *= factor;
    }

    RouteArgs args_;
    float* logits_;
    int n_experts_;
    Chunks chunks_;
};

}  // namespace

void route(Program& program, const RouteArgs& args) {
    const int n_experts = args.gate.rows.n_rows;
    auto* logits = static_cast<float*>(
        program.buffer(sizeof(float) * n_experts * static_cast<size_t>(args.x.n_tokens)));
    LinearArgs router{args.x, 1, {{args.gate, nullptr, logits}}};
    linear(program, router);
    program.add(new Choose(args, logits));
}

}  // namespace octavo::OCTAVO_LEVEL

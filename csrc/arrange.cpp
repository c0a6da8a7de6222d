// Small elementwise and copying operations: add, concat, take, softcap.
#include <cmath>
#include <cstring>

#include "chunks.h"
#include "kernels.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

class Add final : public Op {
  public:
    Add(const float* x, const float* y, int64_t n, float* out) : x_(x), y_(y), n_(n), out_(out) {}

    int prepare(int) override { return static_cast<int>((n_ + kPiece - 1) / kPiece); }

    void run(int chunk, Thread&) override {
        int64_t i = chunk * kPiece;
        const int64_t end = i + kPiece < n_ ? i + kPiece : n_;
        for (; i + kLanes <= end; i += kLanes) store(out_ + i, add(load(x_ + i), load(y_ + i)));
        for (; i < end; ++i) out_[i] = x_[i] + y_[i];
    }

  private:
    static constexpr int64_t kPiece = static_cast<int64_t>(kSmallWork);
    const float* x_;
    const float* y_;
    int64_t n_;
    float* out_;
};

class Softcap final : public Op {
  public:
    Softcap(const float* x, int64_t n, float cap, float* out)
        : x_(x), n_(n), cap_(cap), out_(out) {}

    int prepare(int) override { return static_cast<int>((n_ + kPiece - 1) / kPiece); }

    void run(int chunk, Thread&) override {
        const int64_t begin = chunk * kPiece;
        const int64_t end = begin + kPiece < n_ ? begin + kPiece : n_;
        for (int64_t i = begin; i < end; ++i) out_[i] = cap_ * std::tanh(x_[i] / cap_);
    }

  private:
    static constexpr int64_t kPiece = 2048;
    const float* x_;
    int64_t n_;
    float cap_;
    float* out_;
};

class Concat final : public Op {
  public:
    Concat(const Heads& x, const Heads& y, float* out) : x_(x), y_(y), out_(out) {}

    int prepare(int) override {
        chunks_ = chunks_of(x_.n_tokens, x_.dim + y_.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            float* out = out_ + static_cast<int64_t>(t) * (x_.dim + y_.dim);
            std::memcpy(out, x_.at(t, 0), x_.dim * sizeof(float));
            std::memcpy(out + x_.dim, y_.at(t, 0), y_.dim * sizeof(float));
        }
    }

  private:
    Heads x_, y_;
    float* out_;
    Chunks chunks_;
};

class Take final : public Op {
  public:
    Take(const Heads& x, const int32_t* rows, int n_rows, float* out)
        : x_(x), rows_(rows), n_rows_(n_rows), out_(out) {}

    int prepare(int) override {
        chunks_ = chunks_of(n_rows_, x_.dim, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        for (int i = chunks_.begin(chunk); i < chunks_.end(chunk); ++i)
            std::memcpy(out_ + static_cast<int64_t>(i) * x_.dim, x_.at(rows_[i], 0),
                        x_.dim * sizeof(float));
    }

  private:
    Heads x_;
    const int32_t* rows_;
    int n_rows_;
    float* out_;
    Chunks chunks_;
};

}  // namespace

void add(Program& program, const float* x, const float* y, int64_t n, float* out) {
    program.add(new Add(x, y, n, out));
}

void concat(Program& program, const Heads& x, const Heads& y, float* out) {
    program.add(new Concat(x, y, out));
}

void take(Program& program, const Heads& x, const int32_t* rows, int n_rows, float* out) {
    program.add(new Take(x, rows, n_rows, out));
}

void softcap(Program& program, const float* x, int64_t n, float cap, float* out) {
    program.add(new Softcap(x, n, cap, out));
}

}  // namespace octavo::OCTAVO_LEVEL

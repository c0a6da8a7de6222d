// The processor's limits, to hold a speed against: reading memory, int8 dot products, float
// multiply-adds.
#include "lanes.h"
#include "level.h"
#include "program.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// Reads every byte once, in pieces of four streams; `sink` receives something that depends on all.
class Read final : public Op {
  public:
    Read(const uint8_t* data, int64_t n_bytes, int64_t* sink)
        : data_(data), n_bytes_(n_bytes), sink_(sink) {}

    int prepare(int) override { return static_cast<int>(n_bytes_ / kPiece); }

    void run(int chunk, Thread&) override {
        constexpr int64_t kStream = kPiece / 4;
        const uint8_t* p = data_ + chunk * kPiece;
        B all[4] = {splat_byte(0), splat_byte(0), splat_byte(0), splat_byte(0)};
        for (int64_t i = 0; i < kStream; i += 32)
            for (int s = 0; s < 4; ++s) all[s] = bits_xor(all[s], load_bytes(p + s * kStream + i));
        int64_t words[4];
        store(words, bits_xor(bits_xor(all[0], all[1]), bits_xor(all[2], all[3])));
        sink_[chunk] = words[0] ^ words[1] ^ words[2] ^ words[3];
    }

  private:
    static constexpr int64_t kPiece = int64_t{1} << 20;
    const uint8_t* data_;
    int64_t n_bytes_;
    int64_t* sink_;
};

// As many independent sums as hide the latency, in registers.
constexpr int kSums = 12;

class DotPeak final : public Op {
  public:
    DotPeak(int64_t n_rounds, int n_chunks, float* sink)
        : n_rounds_(n_rounds), n_chunks_(n_chunks), sink_(sink) {}

    int prepare(int) override { return n_chunks_; }

    void run(int chunk, Thread&) override {
        alignas(64) int8_t bytes[64] = {1, 2, 3};
        alignas(64) int32_t start[16] = {chunk};
        const WeightLanes w = load_weights(bytes);
        const TokenWord x = splat_word(0x01020304);
        // Weights of 7 bits: of smaller ones AVX2 does more, but it would be no peak of int8.
        PanelSums<127, 1> sums[kSums];
        for (auto& s : sums) s.begin(load_lanes(start));
        for (int64_t i = 0; i < n_rounds_; ++i)
            for (auto& s : sums) s.add_word(0, w, x);
        float out[16] = {};
        for (const auto& s : sums) {
            store(out, to_float(s.sum()));
            sink_[chunk] += out[0];
        }
    }

  private:
    int64_t n_rounds_;
    int n_chunks_;
    float* sink_;
};

class FmaPeak final : public Op {
  public:
    FmaPeak(int64_t n_rounds, int n_chunks, float* sink)
        : n_rounds_(n_rounds), n_chunks_(n_chunks), sink_(sink) {}

    int prepare(int) override { return n_chunks_; }

    void run(int chunk, Thread&) override {
        const F w = splat(0.5f + 1e-6f * static_cast<float>(chunk)), x = splat(0.25f);
        F sums[kSums];
        for (F& s : sums) s = x;
        for (int64_t i = 0; i < n_rounds_; ++i)
            for (F& s : sums) s = fma(s, w, x);
        for (const F& s : sums) sink_[chunk] += sum(s);
    }

  private:
    int64_t n_rounds_;
    int n_chunks_;
    float* sink_;
};

}  // namespace

void read_memory(Program& program, const uint8_t* data, int64_t n_bytes, int64_t* sink) {
    program.add(new Read(data, n_bytes, sink));
}

double dot_peak(Program& program, int64_t n_rounds, int n_chunks, float* sink) {
    program.add(new DotPeak(n_rounds, n_chunks, sink));
    return 8.0 * kPanelRows * kSums * static_cast<double>(n_rounds) * n_chunks;
}

double fma_peak(Program& program, int64_t n_rounds, int n_chunks, float* sink) {
    program.add(new FmaPeak(n_rounds, n_chunks, sink));
    return 2.0 * kLanes * kSums * static_cast<double>(n_rounds) * n_chunks;
}

}  // namespace octavo::OCTAVO_LEVEL

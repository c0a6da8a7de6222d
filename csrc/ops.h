// The arguments of every operation: pointers and shapes, filled in by bindings.cpp after it has
// checked them. Meanings are those of src/octavo/ops/__init__.py.
#pragma once

#include <cstdint>

#include "rows.h"

namespace octavo {

struct FormatKernels;
struct CacheKernels;

// (T, H, d) floats: element (t, h, i) at data[t * token + h * head + i]. (T, D) has H = 1.
struct Heads {
    float* data;
    int64_t token;  // stride in floats
    int64_t head;   // stride in floats
    int n_tokens;
    int n_heads;
    int dim;
    float* at(int t, int h) const { return data + t * token + h * head; }
};

struct Matrix {
    const FormatKernels* format;
    BlockRows rows;
};

struct EmbedArgs {
    Matrix table;
    const int32_t* ids;
    int n_tokens;
    float scale;
    float* out;  // (T, D)
};

struct NormArgs {
    Heads x;
    const float* weight;
    float eps;
    const float* residual;  // (T, D) contiguous or nullptr
    float* sum;             // x + residual, where residual is given
    float* out;             // contiguous
};

struct LinearArgs {
    static constexpr int kMost = 8;
    struct Output {
        Matrix weight;
        const float* bias;  // (N,) or nullptr
        float* out;         // (T, N) contiguous
    };
    Heads x;  // H = 1
    int n_outputs;
    Output outputs[kMost];
};

struct RopeArgs {
    Heads x;
    const int32_t* positions;
    const float* frequencies;
    int n_frequencies;
    bool adjacent;
    float magnitude;
    float* out;  // (T, H, d) contiguous
};

// The sequences of a batch; see kv/batch.py.
struct Sequences {
    int n_sequences;
    const int32_t* starts;
    const int32_t* n_past;
    const int32_t* pages;  // (S, pages_stride)
    int64_t pages_stride;
    const int32_t* slots;
    const int32_t* state_slots;
};

struct AttendArgs {
    Heads q, k, v;
    uint8_t* cache;  // (pages, page_bytes): key heads, then value heads
    int64_t page_bytes;
    const CacheKernels* format;
    Sequences sequences;
    float scale;
    int window;  // 0: none
    Heads gate;  // data is nullptr if there is none
    float* out;  // (T, H * dv)
};

struct RecurArgs {
    Heads qkv, z, alpha, beta;  // H = 1
    const float* conv_weight;   // (channels, kernel)
    const float* a;
    const float* dt;
    const float* norm_weight;
    float eps;
    int n_key_heads, n_value_heads, key_dim, value_dim, conv_kernel;
    bool tiled;
    float* conv;   // (slots, kernel - 1, channels)
    float* state;  // (slots, V, key_dim, value_dim)
    Sequences sequences;
    float* out;  // (T, V * value_dim)
};

struct RouteArgs {
    Heads x;  // H = 1
    Matrix gate;
    int n_used;
    bool sigmoid;
    bool normalise;
    float scale;
    int32_t* ids;    // (T, k)
    float* weights;  // (T, k)
};

enum class Activation { kSilu, kGelu };

struct GluArgs {
    Heads x;  // H = 1
    Matrix gate, up, down;
    Activation activation;
    const float* scale;  // (D,) or nullptr
    float* out;          // (T, D)
};

struct ExpertsArgs {
    Heads x;                // H = 1
    Matrix gate, up, down;  // rows of all experts one after the other; up.format nullptr: fused
    int n_experts;
    Activation activation;
    const int32_t* ids;    // (T, k)
    const float* weights;  // (T, k)
    int n_used;
    float* out;  // (T, D)
};

}  // namespace octavo

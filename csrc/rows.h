// Activations as the integer kernels read them: rows of int8 with a scale for every 32 values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

constexpr int kGroup = 32;  // values that share an activation scale
constexpr int kSpan = 256;  // weights that a kernel handles between two looks at block headers

inline int round_up(int n, int multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// A float of these bits is kFloatBase, and so many more bits make it so much more: a sum that
// begins with them needs not be converted. It is taken off with an exact product: scales have two
// bits less than floats have.
constexpr int32_t kFloatBaseBits = 0x4B400000;
constexpr float kFloatBase = 12582912.0f;  // 3 * 2^22

// 32 columns of some rows side by side, so that all are found from one address. Rows that are
// missing are zeros.
constexpr int kSideRows = 8;
struct SideGroup {
    uint32_t words[8][kSideRows];  // four q each
    float scale[kSideRows], sum32[kSideRows];
    float base[kSideRows];  // scale * -kFloatBase
    float sum16[2][kSideRows];
    int32_t whole32[kSideRows], whole16[2][kSideRows];
};

// T rows of K values. Rows are padded with zeros to a multiple of kSpan, so that kernels need no
// tails. x[i] is about scale * q[i]; q is rounded to nearest even, scale = max|x| / 127
// without its last two bits.
struct QuantRows {
    const int8_t* q;         // (T, padded)
    const float* scale;      // (T, padded / 32)
    const float* sum32;      // (T, padded / 32): scale * sum of q over 32 values
    const float* sum16;      // (T, padded / 16): scale * sum of q over 16 values
    const int32_t* whole32;  // (T, padded / 32): sum of q over 32 values
    const int32_t* whole16;  // (T, padded / 16): sum of q over 16 values
    int n_rows;
    int n_columns;
    int padded;                       // round_up(n_columns, kSpan)
    const SideGroup* side = nullptr;  // (padded / 32): the same, where they are put so
};

// Bytes of one buffer for all arrays, and where they lie in it.
inline size_t quant_rows_bytes(int n_rows, int n_columns) {
    const size_t padded = round_up(n_columns, kSpan);
    return n_rows * (padded + padded / 32 * 12 + padded / 16 * 8);
}
inline QuantRows quant_rows_in(void* memory, int n_rows, int n_columns) {
    const size_t padded = round_up(n_columns, kSpan);
    auto* q = static_cast<int8_t*>(memory);
    auto* scale = reinterpret_cast<float*>(q + n_rows * padded);
    auto* sum32 = scale + n_rows * (padded / 32);
    auto* sum16 = sum32 + n_rows * (padded / 32);
    auto* whole32 = reinterpret_cast<int32_t*>(sum16 + n_rows * (padded / 16));
    auto* whole16 = whole32 + n_rows * (padded / 32);
    return {
        q,      scale, sum32, sum16, whole32, whole16, n_rows, n_columns, static_cast<int>(padded),
        nullptr};
}

// Rows of a weight as they lie in the file.
struct BlockRows {
    const uint8_t* data;
    size_t row_bytes;
    int n_rows;
    int n_columns;
};

}  // namespace octavo

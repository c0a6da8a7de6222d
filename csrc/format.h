// The kernels of a block format, made from its header in quants/: dot products, unpacking, and
// panels for matmul.
#pragma once

#include "float_format.h"
#include "format_dot.h"
#include "kernels.h"
#include "panel.h"

namespace octavo::OCTAVO_LEVEL {

// FormatKernels::unpack: rounded as the format defines it.
template <class Q>
void unpack(const uint8_t* row, int n_columns, float* out) {
    constexpr int kBlockScales = Q::kBlock / Q::kScaleGroup;
    constexpr float kZero = static_cast<float>(zero_of<Q>());
    for (; n_columns > 0; n_columns -= Q::kBlock, row += Q::kBytes) {
        float scale[kBlockScales], offset[kBlockScales];
        Q::scales(row, scale, offset);
        for (int group = 0; group < Q::kBlock / kGroup; ++group) {
            alignas(32) uint8_t values[kGroup];
            store(values, group_values<Q>(row, group));
            for (int i = 0; i < kGroup; i += 8, out += 8) {
                const int at = (group * kGroup + i) / Q::kScaleGroup;
                F8 w = Q::kSigned ? load8_int8(reinterpret_cast<int8_t*>(values) + i)
                                  : load8_uint8(values + i);
                if constexpr (zero_of<Q>() != 0) w = sub(w, splat8(kZero));
                w = mul(w, splat8(scale[at]));
                if constexpr (Q::kOffset && zero_of<Q>() == 0) w = add(w, splat8(offset[at]));
                store(out, w);
            }
        }
    }
}

template <class Q>
constexpr FormatKernels format_kernels(const char* name) {
    FormatKernels k{};
    k.name = name;
    k.block_elements = Q::kBlock;
    k.block_bytes = Q::kBytes;
    if constexpr (Q::kBlock == 1) {
        k.is_float = true;
        k.dot_floats = dot_floats<Q>;
        k.unpack = unpack_floats<Q>;
        k.pack_panel = pack_floats<Q>;
    } else {
        k.scale_group = Q::kScaleGroup;
        k.has_offset = kHasOffset<Q>;
        k.most = most_of<Q>();
        k.zero = zero_of<Q>();
        k.dot = dot<Q>;
        k.unpack = unpack<Q>;
        k.pack_panel = pack_panel<Q>;
    }
    return k;
}

}  // namespace octavo::OCTAVO_LEVEL

// The table of the format whose struct is `stem`.
#define OCTAVO_FORMAT(stem)                                              \
    namespace octavo::OCTAVO_LEVEL {                                     \
    extern const FormatKernels format_##stem;                            \
    constexpr FormatKernels format_##stem = format_kernels<stem>(#stem); \
    }

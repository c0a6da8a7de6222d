// What the header of a block format offers, and reading it for a group of weights or a span.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// What quants/<stem>.h offers as `struct <stem>`; weight = scale * value + offset.
//
//   kBlock, kBytes   weights and bytes of a block
//   kScaleGroup      weights that share scale and offset: 16 or 32
//   kSigned          values are int8; otherwise 0..127
//   kOffset          whether there are offsets
//   kZero            optional: every offset is -scale * kZero
//   scales(block, scale, offset)   fills kBlock / kScaleGroup of each
//   values(block, i)               weights 32 i .. 32 i + 31
//   span_scales(blocks, scale, offset)   optional, for blocks below 256: those of kSpan weights
template <class Q>
concept HasSpanScales = requires(const uint8_t* p, float* f) { Q::span_scales(p, f, f); };

template <class Q>
constexpr int zero_of() {
    if constexpr (requires { Q::kZero; }) return Q::kZero;
    return 0;
}

// Signed weights become unsigned by 128 more where the dot instruction takes all of 0..255.
template <class Q>
constexpr bool kFlipped = Q::kSigned && kFullUnsigned;

// By how much the bytes that are multiplied lie above the whole numbers they stand for. The sums
// start below zero for it, which costs nothing and loses nothing; offsets in float would.
template <class Q>
constexpr int kLift = kFlipped<Q> ? 128 : zero_of<Q>();

template <class Q>
constexpr bool kHasOffset = Q::kOffset && zero_of<Q>() == 0;

// How far ahead of its use a row's memory is asked for: the processor's own guesses end with a
// page.
constexpr int kPrefetchBytes = 1024;

template <class Q>
OCTAVO_INLINE B group_values(const uint8_t* span, int group) {
    constexpr int kGroups = Q::kBlock / kGroup;
    return Q::values(span + group / kGroups * Q::kBytes, group % kGroups);
}

// Scales and offsets of `n_groups` groups of 32 weights, zeros up to kSpan weights.
template <class Q>
OCTAVO_INLINE void read_scales(const uint8_t* span, int n_groups, float* scale, float* offset) {
    constexpr int kSpanScales = kSpan / Q::kScaleGroup;
    constexpr int kBlockScales = Q::kBlock / Q::kScaleGroup;
    if (n_groups == kSpan / kGroup) {
        if constexpr (HasSpanScales<Q>) {
            Q::span_scales(span, scale, offset);
        } else {
            for (int i = 0; i < kSpan / Q::kBlock; ++i)
                Q::scales(span + i * Q::kBytes, scale + i * kBlockScales,
                          offset + i * kBlockScales);
        }
        return;
    }
    for (int i = 0; i < kSpanScales; ++i) scale[i] = offset[i] = 0.0f;
    for (int i = 0; i < n_groups * kGroup / Q::kBlock; ++i)
        Q::scales(span + i * Q::kBytes, scale + i * kBlockScales, offset + i * kBlockScales);
}

}  // namespace octavo::OCTAVO_LEVEL

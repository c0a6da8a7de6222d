// What the header of a block format offers, and reading it for a group of weights or a span.
#pragma once

#include "kernels.h"
#include "lanes.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// What quants/<stem>.h offers as `struct <stem>`; weight = scale * value + offset.
//
//   kBlock, kBytes   weights and bytes of a block
//   kScaleGroup      weights that share scale and offset: 16 or 32
//   kSigned          values are int8; otherwise 0..kMost
//   kMost            optional: 127 where it is not there
//   kOffset          whether there are offsets
//   kZero            optional: every offset is -scale * kZero
//   scales(block, scale, offset)   fills kBlock / kScaleGroup of each
//   values(block, i)               weights 32 i .. 32 i + 31
//   kLong            optional, true: `values` takes many instructions and is no quicker for a group
//                    that the compiler knows
//   lane_scales(spans, n, scale, offset)   optional: those of the first n blocks of a span of kSpan
//                                weights of kPanelRows rows: the i-th lie together, row after row,
//                                at scale + i * kPanelRows
//
// and, where several groups lie in the same bytes, so that these are turned over once for all:
//
//   kPackGroups, kPackLoads      groups in a pack, and times 32 bytes that a pack takes
//   packed(span, pack, i)        the i-th 32 bytes of a pack of a span of kSpan weights
//   word(turned, group, i)       values 4 i .. 4 i + 3 of a group of the pack whose loads are
//                                turned[0], turned[1] ..., each 8 words of 4 bytes of all rows
//
// or, where a block is one group of 4 bits each:
//
//   kHalvesAt                    where its 16 bytes lie, low halves first
//   value(halves)                values of such bytes, 0..15
//   kBitsAt                      optional: where a bit for each weight lies, which is worth 16 more
//
// and, where four weights at a time come out of a table, so that they are looked up into the lanes:
//
//   put_points(a, b, out, step)  four bytes for each four weights of a block a and as many of b
//                                behind them; these pairs are `step` apart
//   signs(block)                 a bit for each weight, 32 bytes
//   signed_word(points, mask)    values of such bytes; the mask is 0xFF where the bit is set
//
// These need no `values`.
template <class Q>
concept HasLaneScales = requires(const uint8_t* const* p, float* f) { Q::lane_scales(p, 1, f, f); };
template <class Q>
concept HasLongValues = requires { Q::kLong; };
template <class Q>
concept HasPacks = requires { Q::kPackGroups; };
template <class Q>
concept HasHalves = requires { Q::kHalvesAt; };
template <class Q>
concept HasFifthBits = requires { Q::kBitsAt; };
template <class Q>
concept HasPoints = requires(const uint8_t* p, uint64_t* out) { Q::put_points(p, p, out, 1); };

template <class Q>
constexpr int zero_of() {
    if constexpr (requires { Q::kZero; }) return Q::kZero;
    return 0;
}

// The largest value, 0 for signed ones.
template <class Q>
constexpr int most_of() {
    if constexpr (Q::kSigned) return 0;
    if constexpr (requires { Q::kMost; }) return Q::kMost;
    return 127;
}

// Signed weights become unsigned by 128 more where the dot instruction takes all of 0..255.
template <class Q>
constexpr bool kFlipped = Q::kSigned && kFullUnsigned;

// By how much the bytes that are multiplied lie above the whole numbers they stand for. The sums
// start below zero for it, which loses nothing; offsets in float would.
template <class Q>
constexpr int kLift = kFlipped<Q> ? 128 : zero_of<Q>();

template <class Q>
constexpr bool kHasOffset = Q::kOffset && zero_of<Q>() == 0;

// Weights of a group of a block, or of the blocks that follow.
template <class Q>
OCTAVO_INLINE B group_values(const uint8_t* block, int group) {
    if constexpr (HasPoints<Q>) {
        uint64_t pairs[kSpan / 4];
        uint32_t points[8], signs[8];
        Q::put_points(block, block, pairs, 1);
        for (int i = 0; i < 8; ++i) points[i] = static_cast<uint32_t>(pairs[group * 8 + i]);
        store(signs, Q::signs(block));
        return Q::signed_word(load_bytes(points), mask_of_bits(signs[group]));
    } else {
        constexpr int kGroups = Q::kBlock / kGroup;
        return Q::values(block + group / kGroups * Q::kBytes, group % kGroups);
    }
}

// Scales and offsets of a span of kPanelRows rows, rows in the lanes.
template <class Q>
struct SpanScales {
    static constexpr int kScales = kSpan / Q::kScaleGroup;

    alignas(64) float scale[kScales][kPanelRows];
    alignas(64) float offset[kScales][kPanelRows];

    // Of the first `n_groups` groups of 32 weights.
    OCTAVO_INLINE void read(const uint8_t* const spans[kPanelRows], int n_groups) {
        if constexpr (HasLaneScales<Q>) {
            Q::lane_scales(spans, n_groups * kGroup / Q::kBlock, scale[0], offset[0]);
            return;
        }
        alignas(64) float row_scale[kPanelRows][kScales], row_offset[kPanelRows][kScales];
        for (int r = 0; r < kPanelRows; ++r)
            read_row(spans[r], n_groups, row_scale[r], row_offset[r]);
        for (int i = 0; i < kScales; i += 8) {
            turn_over(row_scale, i, scale + i);
            if constexpr (kHasOffset<Q>) turn_over(row_offset, i, offset + i);
        }
    }

  private:
    OCTAVO_INLINE static void read_row(const uint8_t* span, int n_groups, float* scale,
                                       float* offset) {
        constexpr int kBlockScales = Q::kBlock / Q::kScaleGroup;
        for (int i = 0; i < kScales; ++i) scale[i] = offset[i] = 0.0f;
        for (int i = 0; i < n_groups * kGroup / Q::kBlock; ++i)
            Q::scales(span + i * Q::kBytes, scale + i * kBlockScales, offset + i * kBlockScales);
    }

    OCTAVO_INLINE static void turn_over(const float (&rows)[kPanelRows][kScales], int column,
                                        float (*out)[kPanelRows]) {
        B in[kPanelRows];
        WeightLanes words[8];
        for (int r = 0; r < kPanelRows; ++r) in[r] = load_bytes(rows[r] + column);
        turn_rows(in, words);
        for (int i = 0; i < 8; ++i) store(out[i], words[i]);
    }
};

// Calls use(group, word) for the groups of a pack; word(i) are weights 4 i .. 4 i + 3 of all rows.
template <class Q, class Use>
OCTAVO_INLINE void each_group_of_pack(const uint8_t* const rows[kPanelRows], int pack,
                                      const Use& use) {
    WeightLanes turned[Q::kPackLoads][8];
    for (int i = 0; i < Q::kPackLoads; ++i) {
        B bytes[kPanelRows];
        for (int r = 0; r < kPanelRows; ++r) bytes[r] = Q::packed(rows[r], pack, i);
        turn_rows(bytes, turned[i]);
    }
    unrolled<Q::kPackGroups>([&](auto g) {
        use(pack * Q::kPackGroups + g, [&](int i) { return Q::word(turned, g, i); });
    });
}

// Two blocks of 16 bytes.
template <class Q, class Use>
OCTAVO_INLINE void two_groups_of_halves(const uint8_t* const rows[kPanelRows], int pair,
                                        const Use& use) {
    B bytes[kPanelRows];
    WeightLanes turned[8];
    for (int r = 0; r < kPanelRows; ++r) {
        const uint8_t* at = rows[r] + 2 * pair * Q::kBytes + Q::kHalvesAt;
        bytes[r] = load_bytes(at, at + Q::kBytes);
    }
    turn_rows(bytes, turned);
    unrolled<2>([&](auto g) {
        use(pair * 2 + g, [&](int i) { return Q::value(nibble_word(turned, g, i)); });
    });
}

// One.
template <class Q, class Use>
OCTAVO_INLINE void group_of_halves(const uint8_t* const rows[kPanelRows], int group,
                                   const Use& use) {
    IntLanes turned[4];
    load_words(rows, group * Q::kBytes + Q::kHalvesAt, turned);
    const auto value = [&](int i) {
        return Q::value(field(bytes_of(turned[i % 4]), i / 4 * 4, 15));
    };
    if constexpr (HasFifthBits<Q>) {
        const WeightLanes bits = bytes_of(load_word_of_rows(rows, group * Q::kBytes + Q::kBitsAt));
        use(group, [&](int i) {
            const WeightLanes set = mask_of_nibble(bits, i);
            return bits_or(value(i), bits_and(set, splat_as(set, 16)));
        });
    } else {
        use(group, value);
    }
}

template <class Q, class Use>
OCTAVO_INLINE void one_group(const uint8_t* const rows[kPanelRows], int group, const Use& use) {
    B values[kPanelRows];
    WeightLanes words[8];
    // Long code once for each row, or else short code for each group: either fits into the
    // processor's memory for decoded instructions.
    if constexpr (HasLongValues<Q>)
        unrolled<kPanelRows>([&](auto r) { values[r] = group_values<Q>(rows[r], group); });
    else
        for (int r = 0; r < kPanelRows; ++r) values[r] = group_values<Q>(rows[r], group);
    turn_rows(values, words);
    use(group, [&](int i) { return words[i]; });
}

// All points of the span come first: a vector of what was just written in parts has to wait.
template <class Q, class Use>
OCTAVO_INLINE void each_group_of_points(const uint8_t* const rows[kPanelRows], const Use& use) {
    alignas(64) uint64_t points[kSpan / 4][kPanelRows / 2];
    B bits[kPanelRows];
    WeightLanes signs[8];
    for (int r = 0; r < kPanelRows; r += 2)
        Q::put_points(rows[r], rows[r + 1], points[0] + r / 2, kPanelRows / 2);
    for (int r = 0; r < kPanelRows; ++r) bits[r] = Q::signs(rows[r]);
    turn_rows(bits, signs);
    for (int group = 0; group < kSpan / kGroup; ++group)
        use(group, [&](int i) {
            return Q::signed_word(load_weights(points[group * 8 + i]),
                                  mask_of_nibble(signs[group], i));
        });
}

// Calls use(group, word) for the first `n_groups` groups of a span, whole blocks.
template <class Q, class Use>
OCTAVO_INLINE void each_group(const uint8_t* const rows[kPanelRows], int n_groups, const Use& use) {
    if constexpr (HasPoints<Q>) {
        each_group_of_points<Q>(rows, use);
    } else if constexpr (HasHalves<Q>) {
        // Two at once are quicker with 16 rows, one by one with 8.
        int group = 0;
        if constexpr (kPanelRows == 16 && !HasFifthBits<Q>)
            for (; group + 2 <= n_groups; group += 2) two_groups_of_halves<Q>(rows, group / 2, use);
        for (; group < n_groups; ++group) group_of_halves<Q>(rows, group, use);
    } else {
        int group = 0;
        if constexpr (HasPacks<Q>)
            for (; group + Q::kPackGroups <= n_groups; group += Q::kPackGroups)
                each_group_of_pack<Q>(rows, group / Q::kPackGroups, use);
        for (; group < n_groups; ++group) one_group<Q>(rows, group, use);
    }
}

// The same for a whole span. A row that is its own block's bytes is written out for each group.
template <class Q, class Use>
OCTAVO_INLINE void each_group_of_span(const uint8_t* const rows[kPanelRows], const Use& use) {
    if constexpr (HasPoints<Q> || HasPacks<Q> || HasHalves<Q> || HasLongValues<Q>)
        each_group<Q>(rows, kSpan / kGroup, use);
    else
        unrolled<kSpan / kGroup>([&](auto group) { one_group<Q>(rows, group, use); });
}

}  // namespace octavo::OCTAVO_LEVEL

// Which token uses which expert, sorted by expert, and how that work is cut into chunks.
#pragma once

#include "chunks.h"
#include "matmul.h"

namespace octavo::OCTAVO_LEVEL {

// Tiles of tokens a chunk where they are multiplied with panels.
constexpr int kChunkTiles = 64;

// An expert with its pairs: sorted positions first .. first + n - 1.
struct Group {
    int expert;
    int first;
    int n;
    int first_tile;   // of the tiles that its pairs fill
    int first_chunk;  // of the operation that is being cut into chunks
};

// Up to here, sorting by comparison is faster than counting for all experts, and the results of
// some rows fit into the processor's nearest cache.
constexpr int kFewPairs = 64;

// The pairs of a step, sorted by expert. Filled anew in every run, by the first operation.
struct Pairs {
    const int32_t* ids;  // (T, k), below 0: left out; nullptr: every token uses expert 0
    int n_tokens;
    int n_used;
    int n_experts;
    Group* groups;      // those experts that have pairs
    int32_t* token_of;  // sorted position -> token
    int32_t* position;  // (T, k) -> sorted position, -1: left out
    int n_groups;
    int n_tiles;

    int count() const { return n_tokens * n_used; }
    int expert_of(int pair) const { return ids ? ids[pair] : 0; }
    int most_tiles() const { return count() / kTileTokens + n_experts; }

    void sort() {
        n_groups = n_tiles = 0;
        if (count() <= kFewPairs)
            sort_few();
        else
            sort_many();
        for (int i = 0; i < n_groups; ++i) {
            groups[i].first_tile = n_tiles;
            n_tiles += (groups[i].n + kTileTokens - 1) / kTileTokens;
        }
    }

  private:
    // Puts one pair after the other in its place among those before.
    void sort_few() {
        int32_t pairs[kFewPairs];
        int n = 0;
        for (int i = 0; i < count(); ++i) {
            position[i] = -1;
            if (expert_of(i) < 0) continue;
            int at = n++;
            for (; at > 0 && expert_of(pairs[at - 1]) > expert_of(i); --at)
                pairs[at] = pairs[at - 1];
            pairs[at] = i;
        }
        for (int at = 0; at < n; ++at) {
            const int expert = expert_of(pairs[at]);
            if (at == 0 || expert != groups[n_groups - 1].expert)
                groups[n_groups++] = {expert, at, 0, 0, 0};
            ++groups[n_groups - 1].n;
            position[pairs[at]] = at;
            token_of[at] = pairs[at] / n_used;
        }
    }

    void sort_many() {
        // Groups are indexed by expert first; those without pairs are dropped at the end.
        for (int e = 0; e < n_experts; ++e) groups[e] = {e, 0, 0, 0, 0};
        for (int i = 0; i < count(); ++i)
            if (expert_of(i) >= 0) ++groups[expert_of(i)].n;
        for (int e = 1; e < n_experts; ++e) groups[e].first = groups[e - 1].first + groups[e - 1].n;
        for (int e = 0; e < n_experts; ++e) groups[e].first_chunk = groups[e].first;
        for (int i = 0; i < count(); ++i) {
            position[i] = expert_of(i) < 0 ? -1 : groups[expert_of(i)].first_chunk++;
            if (position[i] >= 0) token_of[position[i]] = i / n_used;
        }
        for (int e = 0; e < n_experts; ++e)
            if (groups[e].n > 0) groups[n_groups++] = groups[e];
    }
};

// Chunks over (group, block of its pairs, block of weight rows).
class GroupChunks {
  public:
    // Of matrices of n_rows rows; blocks of few tokens are multiples of `granule` rows.
    void cut(Pairs& pairs, bool tiled, int n_rows, size_t row_bytes, int granule, int n_threads) {
        pairs_ = &pairs;
        const double n_bytes = static_cast<double>(pairs.n_groups) * n_rows * row_bytes;
        const int most = static_cast<int>(stream_bytes(n_bytes, n_threads) / row_bytes);
        const int few = (most + granule / 2) / granule * granule;
        block_rows_ = tiled ? kTileRows : few < granule ? granule : few;
        block_pairs_ = tiled ? kChunkTiles * kTileTokens : pairs.count();
        n_row_blocks_ = (n_rows + block_rows_ - 1) / block_rows_;
        n_chunks_ = 0;
        for (int i = 0; i < pairs.n_groups; ++i) {
            pairs.groups[i].first_chunk = n_chunks_;
            n_chunks_ += (pairs.groups[i].n + block_pairs_ - 1) / block_pairs_ * n_row_blocks_;
        }
    }

    int count() const { return n_chunks_; }

    struct Place {
        const Group* group;
        int from, to;  // pairs of the group
        int row0, row1;
    };

    Place at(int chunk) const {
        int low = 0, high = pairs_->n_groups;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (pairs_->groups[middle].first_chunk <= chunk ? low : high) = middle;
        }
        const Group& group = pairs_->groups[low];
        const int inside = chunk - group.first_chunk;
        const int from = inside / n_row_blocks_ * block_pairs_;
        const int row0 = inside % n_row_blocks_ * block_rows_;
        return {&group, from, from + block_pairs_ < group.n ? from + block_pairs_ : group.n, row0,
                row0 + block_rows_};
    }

  private:
    const Pairs* pairs_ = nullptr;
    int block_rows_ = 1, block_pairs_ = 1, n_row_blocks_ = 1, n_chunks_ = 0;
};

}  // namespace octavo::OCTAVO_LEVEL

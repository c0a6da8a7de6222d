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
        n_groups = n_tiles = 0;
        for (int e = 0; e < n_experts; ++e) {
            if (groups[e].n == 0) continue;
            groups[n_groups] = groups[e];
            groups[n_groups++].first_tile = n_tiles;
            n_tiles += (groups[e].n + kTileTokens - 1) / kTileTokens;
        }
    }
};

// Chunks over (group, block of its pairs, block of weight rows).
class GroupChunks {
  public:
    void cut(Pairs& pairs, bool tiled, int n_rows, size_t row_bytes, int n_threads) {
        pairs_ = &pairs;
        const double n_bytes = static_cast<double>(pairs.n_groups) * n_rows * row_bytes;
        const int most = static_cast<int>(stream_bytes(n_bytes, n_threads) / row_bytes);
        const int few = (most + kPanelRows / 2) / kPanelRows * kPanelRows;
        block_rows_ = tiled ? kTileRows : few < kPanelRows ? kPanelRows : few;
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

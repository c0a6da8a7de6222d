// Cutting a range of items into chunks of about equal work.
#pragma once

namespace octavo {

struct Chunks {
    int n_items = 0;
    int per_chunk = 1;

    int count() const { return (n_items + per_chunk - 1) / per_chunk; }
    int begin(int chunk) const { return chunk * per_chunk; }
    int end(int chunk) const {
        const int end = (chunk + 1) * per_chunk;
        return end < n_items ? end : n_items;
    }
};

// Chunks of `n_items` items that cost `item_work` each, none below `chunk_work` but the last.
inline Chunks chunks_of(int n_items, double item_work, double chunk_work) {
    const double per_chunk = chunk_work / (item_work > 1 ? item_work : 1);
    return {n_items, per_chunk < 1         ? 1
                     : per_chunk > n_items ? (n_items > 0 ? n_items : 1)
                                           : static_cast<int>(per_chunk)};
}

// Bytes of a chunk of weights that are read at memory speed, `n_bytes` of them in all. Long streams
// are read fastest, as each begins with waiting; but the threads must have enough chunks to share
// evenly, and none may keep the others waiting for long.
inline double stream_bytes(double n_bytes, int n_threads) {
    constexpr double kLeast = 16384, kMost = 1 << 20;
    const double bytes = n_bytes / (8 * n_threads);
    return bytes < kLeast ? kLeast : bytes > kMost ? kMost : bytes;
}

// Floats that one thread touches in some microseconds: below that, sharing costs more than it
// saves.
constexpr double kSmallWork = 16384;

}  // namespace octavo

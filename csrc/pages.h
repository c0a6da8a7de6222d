// Where the keys and values of a layer lie, and how its pages are taken together.
#pragma once

#include "attend.h"
#include "ops.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

// One head's blocks in a page.
struct Blocks {
    explicit Blocks(const AttendArgs& args)
        : cache(args.cache),
          page_bytes(args.page_bytes),
          key_bytes(args.format->key_bytes(args.k.dim)),
          value_bytes(args.format->value_bytes(args.v.dim)),
          values_at(args.k.n_heads * key_bytes) {}

    uint8_t* keys(int page, int head) const { return cache + page * page_bytes + head * key_bytes; }
    uint8_t* values(int page, int head) const {
        return cache + page * page_bytes + values_at + head * value_bytes;
    }

    uint8_t* cache;
    int64_t page_bytes;
    size_t key_bytes, value_bytes, values_at;
};

// Pages of a span. A span's first page is read from memory unprepared, and its record is work too;
// but many cores want many spans, which a window, seeing few pages, leaves few of.
constexpr int kSpanPages = 8;
constexpr int kWindowSpanPages = 4;
constexpr int kSpanGrowth = 32;  // a span grows to 1 / 32 of what lies before it

// The spans of a layer: span i is pages begin(i) <= p < begin(i + 1).
class Spans {
  public:
    Spans(Program& program, const AttendArgs& args) {
        const int n_pages = static_cast<int>(args.sequences.pages_stride);
        begins_ = static_cast<int*>(program.buffer(sizeof(int) * (n_pages + 1)));
        const int least = least_pages(args);
        for (int page = 0; page < n_pages;) {
            begins_[n_++] = page;
            // A window sees few pages, however far it is: its spans stay short.
            const int grown = args.window > 0 ? 0 : page / kSpanGrowth;
            page += grown > least ? grown : least;
        }
        begins_[n_] = n_pages;
    }

    static int least_pages(const AttendArgs& args) {
        return args.window > 0 ? kWindowSpanPages : kSpanPages;
    }

    int begin(int span) const { return begins_[span]; }
    int holding(int page) const {
        int low = 0;
        for (int high = n_; high - low > 1;) {
            const int middle = (low + high) / 2;
            (begins_[middle] <= page ? low : high) = middle;
        }
        return low;
    }

  private:
    int* begins_ = nullptr;
    int n_ = 0;
};

// A piece of at most so many tokens is short: what shares it out writes its keys and values too.
constexpr int kFewTokens = 8;

// The new keys and values of a sequence that fall into its page `page`, of one head, into the
// cache.
OCTAVO_INLINE void append_page(const AttendArgs& args, const Blocks& blocks, int sequence, int page,
                               int head) {
    const Sequences& all = args.sequences;
    const int n_past = all.n_past[sequence], start = all.starts[sequence];
    const int first = page * kPageTokens, last = n_past + all.starts[sequence + 1] - start;
    const int from = n_past > first ? n_past : first;
    const int end = last < first + kPageTokens ? last : first + kPageTokens;
    if (from >= end) return;
    const int t = start + from - n_past, at = all.pages[sequence * all.pages_stride + page];
    args.format->write_keys(blocks.keys(at, head), args.k.dim, from - first, args.k.at(t, head),
                            args.k.token, end - from);
    args.format->write_values(blocks.values(at, head), args.v.dim, from - first, args.v.at(t, head),
                              args.v.token, end - from);
}

// Adds an operation that writes keys and values of all pieces but short ones into the cache.
void append(Program& program, const AttendArgs& args);

}  // namespace octavo::OCTAVO_LEVEL

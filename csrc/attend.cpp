// Attention over a paged cache, once the step's keys and values are in it.
//
// Pages are taken in spans that depend on the layer only. A span gives every query row a record
// (records.h), and records are joined in the order of the spans. Pieces of few tokens share out
// the spans among the chunks and join them in an operation of their own; longer pieces share out
// tiles of tokens, each of which walks all its spans. Both ways a token's sums have one order, so
// its result is the same bits, whatever else is in the step.
#include "attend.h"

#include "chunks.h"
#include "kernels.h"
#include "memory.h"
#include "pages.h"
#include "program.h"
#include "records.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

constexpr int kTileRows = 96;  // query rows of a tile of a longer piece, about
// A chunk of a short piece: spans of about so many bytes, as memory is read best in long runs, but
// not so many that few chunks are left to share out.
constexpr double kChunkBytes = 512 << 10;
constexpr int kFewChunks = 12;

// What a sequence has to do in this step.
struct Piece {
    int token;     // its first
    int position;  // of that token
    int n_tokens;
    int sequence;
    int first_chunk;
    int head_chunks;  // for each key head: tiles, or groups of spans where the piece is short
    int first_span;   // of those that its tokens see
    int n_spans;
    int64_t first_record;  // of a short piece of several spans: [span][key head][row]

    bool is_short() const { return n_tokens <= kFewTokens; }
    int last() const { return position + n_tokens - 1; }
};

// Query rows of one key head: `n_tokens` tokens times the heads that share the key head.
struct Tile {
    int token;
    int position;
    int n_tokens;
    int key_head;
    int n_rows;
    uint8_t* queries;  // as the format prepared them
    float* scores;     // of the present page, then weights
    float* scratch;
};

class Attend final : public Op {
  public:
    Attend(Program& program, const AttendArgs& args)
        : args_(args),
          blocks_(args),
          spans_(program, args),
          shared_(args.q.n_heads / args.k.n_heads) {
        const size_t n = args.sequences.n_sequences + 1;
        pieces_ = static_cast<Piece*>(program.buffer(n * sizeof(Piece)));
    }
    ~Attend() override { release(records_, records_bytes_); }

    int prepare(int) override {
        int n_spans = 0;
        for (int s = 0; s < args_.sequences.n_sequences; ++s) {
            pieces_[s] = piece_of(s);
            if (pieces_[s].is_short()) n_spans += pieces_[s].n_spans * args_.k.n_heads;
        }
        group_spans_ = 1;
        const double span_bytes = static_cast<double>(Spans::least_pages(args_)) *
                                  (blocks_.key_bytes + blocks_.value_bytes);
        while (group_spans_ * span_bytes * 1.5 < kChunkBytes &&
               n_spans / (group_spans_ + 1) >= kFewChunks)
            ++group_spans_;
        int n_chunks = 0;
        int64_t n_records = 0;
        for (int s = 0; s < args_.sequences.n_sequences; ++s) {
            Piece& piece = pieces_[s];
            if (piece.is_short())
                piece.head_chunks = (piece.n_spans + group_spans_ - 1) / group_spans_;
            piece.first_chunk = n_chunks;
            piece.first_record = n_records;
            n_chunks += piece.head_chunks * args_.k.n_heads;
            if (piece.is_short() && piece.n_spans > 1)
                n_records += static_cast<int64_t>(piece.n_spans) * piece.n_tokens * args_.q.n_heads;
        }
        const size_t n_bytes = n_records * Records::stride_of(args_.v.dim) * sizeof(float);
        if (n_bytes > records_bytes_) {
            release(records_, records_bytes_);
            records_bytes_ = n_bytes + n_bytes / 4;  // the context grows step by step
            records_ = static_cast<float*>(acquire(records_bytes_));
        }
        return n_chunks;
    }

    void run(int chunk, Thread& thread) override {
        int s = 0;
        while (chunk >= pieces_[s].first_chunk + pieces_[s].head_chunks * args_.k.n_heads) ++s;
        const Piece& piece = pieces_[s];
        const int key_head = (chunk - piece.first_chunk) / piece.head_chunks;
        const int item = (chunk - piece.first_chunk) % piece.head_chunks;
        if (!piece.is_short()) {
            // The last tile sees most: it is begun first.
            const int first = (piece.head_chunks - 1 - item) * tile_tokens();
            const int left = piece.n_tokens - first;
            run_tile(piece, first, left < tile_tokens() ? left : tile_tokens(), key_head, thread);
            return;
        }
        append_spans(piece, item * group_spans_, (item + 1) * group_spans_, key_head);
        if (piece.n_spans == 1) {
            run_tile(piece, 0, piece.n_tokens, key_head, thread);
        } else {
            float* more;
            const Tile tile = load_tile(piece, 0, piece.n_tokens, key_head, thread, &more);
            const int end = (item + 1) * group_spans_, n_spans = piece.n_spans;
            for (int i = item * group_spans_; i < end && i < n_spans; ++i)
                attend_span(piece, tile, piece.first_span + i,
                            piece.first_span + (end < n_spans ? end : n_spans),
                            records(piece, i, key_head));
        }
    }

    int n_pieces() const { return args_.sequences.n_sequences; }
    const Piece& piece(int s) const { return pieces_[s]; }

    // Of a short piece of several spans: the records of its rows for one key head.
    Records records(const Piece& piece, int span, int key_head) const {
        const int64_t n_rows = static_cast<int64_t>(piece.n_tokens) * shared_;
        const int64_t row = piece.first_record + (span * args_.k.n_heads + key_head) * n_rows;
        return {records_ + row * Records::stride_of(args_.v.dim), args_.v.dim};
    }

    void finish(const Records& records, int row, int token, int head) const {
        const int64_t at = static_cast<int64_t>(token) * args_.q.n_heads + head;
        records.finish(row, args_.gate.data ? args_.gate.at(token, head) : nullptr,
                       args_.out + at * args_.v.dim, args_.v.dim);
    }

  private:
    int tile_tokens() const { return kTileRows > shared_ ? kTileRows / shared_ : 1; }

    int first_seen(int position) const {
        const int from = args_.window > 0 ? position - args_.window + 1 : 0;
        return from > 0 ? from : 0;
    }

    Piece piece_of(int s) const {
        const Sequences& all = args_.sequences;
        Piece piece{};
        piece.sequence = s;
        piece.token = all.starts[s];
        piece.n_tokens = all.starts[s + 1] - piece.token;
        piece.position = all.n_past[s];
        if (piece.n_tokens == 0) return piece;
        piece.first_span = spans_.holding(first_seen(piece.position) / kPageTokens);
        piece.n_spans = spans_.holding(piece.last() / kPageTokens) - piece.first_span + 1;
        piece.head_chunks =
            piece.is_short() ? piece.n_spans : (piece.n_tokens + tile_tokens() - 1) / tile_tokens();
        return piece;
    }

    // The piece's new keys and values in the pages of some of its spans. Nobody else reads those
    // pages of this head in this step.
    void append_spans(const Piece& piece, int from, int to, int key_head) const {
        const int first = spans_.begin(piece.first_span + from);
        const int end = piece.first_span + (to < piece.n_spans ? to : piece.n_spans);
        const int last = piece.last() / kPageTokens;
        int page = piece.position / kPageTokens;
        for (page = page > first ? page : first; page <= last && page < spans_.begin(end); ++page)
            append_page(args_, blocks_, piece.sequence, page, key_head);
    }

    // All spans of a tile, joined and finished.
    void run_tile(const Piece& piece, int first, int n_tokens, int key_head, Thread& thread) const {
        float* more;
        const Tile tile = load_tile(piece, first, n_tokens, key_head, thread, &more);
        const Records span_records(more, args_.v.dim);
        const Records joined(more + tile.n_rows * span_records.stride(), args_.v.dim);
        joined.clear(tile.n_rows);
        const int end = spans_.holding((tile.position + n_tokens - 1) / kPageTokens) + 1;
        for (int span = spans_.holding(first_seen(tile.position) / kPageTokens); span < end;
             ++span) {
            attend_span(piece, tile, span, end, span_records);
            for (int row = 0; row < tile.n_rows; ++row) joined.join(row, span_records, row);
        }
        for (int row = 0; row < tile.n_rows; ++row)
            finish(joined, row, tile.token + row / shared_, key_head * shared_ + row % shared_);
    }

    // Gathers the tile's queries. `more`: room for two sets of records.
    Tile load_tile(const Piece& piece, int first, int n_tokens, int key_head, Thread& thread,
                   float** more) const {
        const int dim = args_.q.dim, n_rows = n_tokens * shared_;
        const size_t score_floats = n_rows * kPageTokens;
        const size_t scratch_floats = tile_scratch_floats(dim > args_.v.dim ? dim : args_.v.dim);
        const size_t record_floats = 2 * n_rows * Records::stride_of(args_.v.dim);
        const size_t q_floats = round_up(n_rows * dim, 16);
        const size_t n_floats = score_floats + scratch_floats + record_floats + q_floats;
        auto* memory = static_cast<float*>(
            thread.scratch(n_floats * sizeof(float) + args_.format->query_bytes(dim, n_rows)));
        const Tile tile{piece.token + first,
                        piece.position + first,
                        n_tokens,
                        key_head,
                        n_rows,
                        reinterpret_cast<uint8_t*>(memory + n_floats),
                        memory,
                        memory + score_floats};
        float* q = memory + n_floats - q_floats;
        for (int row = 0; row < n_rows; ++row) {
            const float* from =
                args_.q.at(tile.token + row / shared_, key_head * shared_ + row % shared_);
            for (int i = 0; i < dim; ++i) q[row * dim + i] = from[i] * args_.scale;
        }
        args_.format->prepare_queries(q, dim, n_rows, tile.queries);
        *more = tile.scratch + scratch_floats;
        return tile;
    }

    // `last_span`: behind those that this chunk goes on with.
    void attend_span(const Piece& piece, const Tile& tile, int span, int last_span,
                     const Records& out) const {
        out.clear(tile.n_rows);
        const int seen = (tile.position + tile.n_tokens - 1) / kPageTokens + 1;
        const auto end_of = [&](int s) { return spans_.begin(s) < seen ? spans_.begin(s) : seen; };
        int page = first_seen(tile.position) / kPageTokens;
        if (page < spans_.begin(span)) page = spans_.begin(span);
        for (; page < end_of(span + 1); ++page)
            attend_page(piece, tile, page, page + 1 < end_of(last_span) ? page + 1 : page, out);
    }

    // The tokens that see something of the page are consecutive.
    // `next_page`: the page after it, or the same.
    void attend_page(const Piece& piece, const Tile& tile, int page, int next_page,
                     const Records& out) const {
        const int start = page * kPageTokens - tile.position;  // of the page, in tokens of the tile
        int end = tile.n_tokens;
        if (args_.window > 0 && end > start + kPageTokens - 1 + args_.window)
            end = start + kPageTokens - 1 + args_.window;
        const int first = start > 0 ? start : 0;
        const int row = first * shared_, end_row = end * shared_;
        const int32_t* pages =
            args_.sequences.pages + piece.sequence * args_.sequences.pages_stride;
        const uint8_t* keys = blocks_.keys(pages[page], tile.key_head);
        const uint8_t* values = blocks_.values(pages[page], tile.key_head);
        Ahead next =
            two_ranges(blocks_.keys(pages[next_page], tile.key_head), blocks_.key_bytes,
                       blocks_.values(pages[next_page], tile.key_head), blocks_.value_bytes);
        Ahead* ahead = next_page != page ? &next : nullptr;
        args_.format->score(keys, args_.q.dim, tile.queries, tile.n_rows, row, end_row, tile.scores,
                            ahead, tile.scratch);
        for (int t = first; t < end; ++t) {
            const int position = tile.position + t;
            const int from = first_seen(position) - page * kPageTokens;
            const int to = position + 1 - page * kPageTokens;
            if (from <= 0 && to >= kPageTokens) continue;
            for (int i = t * shared_; i < (t + 1) * shared_; ++i)
                hide(tile.scores + i * kPageTokens, from, to);
        }
        out.weigh(row, end_row, tile.scores);
        const int last = end - start;  // behind the last position that any of them sees
        args_.format->mix(values, args_.v.dim, last < kPageTokens ? last : kPageTokens,
                          tile.scores + row * kPageTokens, end_row - row, out.sums(row),
                          out.stride(), ahead, tile.scratch);
    }

    // Positions outside from <= p < to get no weight.
    static void hide(float* scores, int from, int to) {
        for (int p = 0; p < from; ++p) scores[p] = kNothing;
        for (int p = to; p < kPageTokens; ++p) scores[p] = kNothing;
    }

    AttendArgs args_;
    Blocks blocks_;
    Spans spans_;
    int shared_;           // query heads of a key head
    int group_spans_ = 1;  // in a chunk of a short piece
    Piece* pieces_;
    float* records_ = nullptr;
    size_t records_bytes_ = 0;
};

// Joins the spans of short pieces; an item is one query row.
class Join final : public Op {
  public:
    Join(const AttendArgs& args, const Attend& attend)
        : attend_(attend),
          n_heads_(args.q.n_heads),
          shared_(args.q.n_heads / args.k.n_heads),
          dim_(args.v.dim) {}

    int prepare(int) override {
        int n_items = 0, n_spans = 1;
        for (int s = 0; s < attend_.n_pieces(); ++s) {
            n_items += n_rows(s);
            if (n_spans < attend_.piece(s).n_spans) n_spans = attend_.piece(s).n_spans;
        }
        chunks_ = chunks_of(n_items, static_cast<double>(n_spans) * dim_, kSmallWork);
        return n_items == 0 ? 0 : chunks_.count();
    }

    void run(int chunk, Thread& thread) override {
        const size_t n_bytes = sizeof(float) * Records::stride_of(dim_);
        const Records joined(static_cast<float*>(thread.scratch(n_bytes)), dim_);
        int item = chunks_.begin(chunk), s = 0;
        for (; item >= n_rows(s); ++s) item -= n_rows(s);
        for (int left = chunks_.end(chunk) - chunks_.begin(chunk); left > 0; --left, ++item) {
            while (item >= n_rows(s)) item = 0, ++s;
            const Piece& piece = attend_.piece(s);
            const int token = item / n_heads_, head = item % n_heads_;
            joined.clear(1);
            for (int span = 0; span < piece.n_spans; ++span)
                joined.join(0, attend_.records(piece, span, head / shared_),
                            token * shared_ + head % shared_);
            attend_.finish(joined, 0, piece.token + token, head);
        }
    }

  private:
    int n_rows(int s) const {
        const Piece& piece = attend_.piece(s);
        return piece.is_short() && piece.n_spans > 1 ? piece.n_tokens * n_heads_ : 0;
    }

    const Attend& attend_;
    int n_heads_, shared_, dim_;
    Chunks chunks_;
};

}  // namespace

void attend(Program& program, const AttendArgs& args) {
    append(program, args);
    auto* attend = new Attend(program, args);
    program.add(attend);
    program.add(new Join(args, *attend));
}

}  // namespace octavo::OCTAVO_LEVEL

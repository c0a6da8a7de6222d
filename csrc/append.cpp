// New keys and values into the pages of the cache.
#include "chunks.h"
#include "kernels.h"
#include "pages.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

// An item is one page of one sequence.
class Append final : public Op {
  public:
    explicit Append(const AttendArgs& args) : args_(args), blocks_(args) {}

    int prepare(int) override {
        int n_items = 0;
        for (int s = 0; s < args_.sequences.n_sequences; ++s) n_items += n_pages(s);
        const double n_floats =
            static_cast<double>(args_.k.n_tokens) * args_.k.n_heads * (args_.k.dim + args_.v.dim);
        chunks_ = {n_items, n_floats < kSmallWork && n_items > 0 ? n_items : 1};
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        int item = chunks_.begin(chunk), s = 0;
        for (; item >= n_pages(s); ++s) item -= n_pages(s);
        for (int left = chunks_.end(chunk) - chunks_.begin(chunk); left > 0; --left) {
            while (item >= n_pages(s)) item = 0, ++s;
            write(s, item++);
        }
    }

  private:
    int n_tokens(int s) const { return args_.sequences.starts[s + 1] - args_.sequences.starts[s]; }
    int n_pages(int s) const {
        if (n_tokens(s) == 0) return 0;
        const int n_past = args_.sequences.n_past[s];
        return (n_past + n_tokens(s) - 1) / kPageTokens - n_past / kPageTokens + 1;
    }

    // The tokens of sequence s that fall into its `item`-th page of this step.
    void write(int s, int item) const {
        const Sequences& all = args_.sequences;
        const int n_past = all.n_past[s];
        const int page = n_past / kPageTokens + item;
        const int from = item == 0 ? n_past : page * kPageTokens;
        const int end = n_past + n_tokens(s), behind = (page + 1) * kPageTokens;
        const int n = (end < behind ? end : behind) - from;
        const int t = all.starts[s] + from - n_past;
        const int at = all.pages[s * all.pages_stride + page];
        for (int head = 0; head < args_.k.n_heads; ++head) {
            args_.format->write_keys(blocks_.keys(at, head), args_.k.dim, from % kPageTokens,
                                     args_.k.at(t, head), args_.k.token, n);
            args_.format->write_values(blocks_.values(at, head), args_.v.dim, from % kPageTokens,
                                       args_.v.at(t, head), args_.v.token, n);
        }
    }

    AttendArgs args_;
    Blocks blocks_;
    Chunks chunks_;
};

}  // namespace

void append(Program& program, const AttendArgs& args) {
    program.add(new Append(args));
}

}  // namespace octavo::OCTAVO_LEVEL

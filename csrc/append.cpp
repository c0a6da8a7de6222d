// New keys and values of long pieces into the pages of the cache.
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
    int n_pages(int s) const {
        const int n_tokens = args_.sequences.starts[s + 1] - args_.sequences.starts[s];
        if (n_tokens <= kFewTokens) return 0;
        const int n_past = args_.sequences.n_past[s];
        return (n_past + n_tokens - 1) / kPageTokens - n_past / kPageTokens + 1;
    }

    void write(int s, int item) const {
        const int page = args_.sequences.n_past[s] / kPageTokens + item;
        for (int head = 0; head < args_.k.n_heads; ++head)
            append_page(args_, blocks_, s, page, head);
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

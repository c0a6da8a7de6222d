// Rows of the embedding table, dequantised.
#include "chunks.h"
#include "kernels.h"
#include "program.h"
#include "simd.h"

namespace octavo::OCTAVO_LEVEL {

namespace {

class Embed final : public Op {
  public:
    explicit Embed(const EmbedArgs& args) : args_(args) {}

    int prepare(int) override {
        chunks_ = chunks_of(args_.n_tokens, args_.table.rows.n_columns, kSmallWork);
        return chunks_.count();
    }

    void run(int chunk, Thread&) override {
        const BlockRows& rows = args_.table.rows;
        for (int t = chunks_.begin(chunk); t < chunks_.end(chunk); ++t) {
            float* out = args_.out + static_cast<int64_t>(t) * rows.n_columns;
            args_.table.format->unpack(rows.data + args_.ids[t] * rows.row_bytes, rows.n_columns,
                                       out);
            if (args_.scale != 1.0f)
                for (int i = 0; i < rows.n_columns; ++i) out[i] *= args_.scale;
        }
    }

  private:
    EmbedArgs args_;
    Chunks chunks_;
};

}  // namespace

void embed(Program& program, const EmbedArgs& args) {
    program.add(new Embed(args));
}

}  // namespace octavo::OCTAVO_LEVEL

// A list of operations with the buffers they share: run at once, or recorded and replayed.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "op.h"
#include "pool.h"

namespace octavo {

// Its functions are not inline: files compiled per instruction-set level call them (kernels.h).
class Program {
  public:
    Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program();

    // Takes ownership.
    void add(Op* op);

    // A buffer that lives as long as the program, for what one operation leaves to the next;
    // 64-byte aligned, contents undefined.
    void* buffer(size_t n_bytes);

    void run(Pool& pool);

    // Runs the operations added since `size()` was `from`.
    void run_from(Pool& pool, size_t from);

    size_t size() const { return ops_.size(); }

  private:
    struct Buffer {
        void* memory;
        size_t n_bytes;
    };
    std::vector<std::unique_ptr<Op>> owned_;
    std::vector<Op*> ops_;
    std::vector<Buffer> buffers_;
};

}  // namespace octavo

// A list of operations with the buffers they share: run at once, or recorded and replayed.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "memory.h"
#include "op.h"
#include "pool.h"

namespace octavo {

// What operations that compute the same have in common.
struct SharedKey {
    const void* first;
    const void* second;
    float number;
    bool operator==(const SharedKey&) const = default;
};

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

    // The same for what only the operations of one call leave to each other: once `end_call` has
    // said that all of them are added, others use the memory again.
    void* passing(size_t n_bytes);
    void end_call();

    // A buffer for all that ask with the same key; `is_new`: whether this is the first.
    void* shared(const SharedKey& key, size_t n_bytes, bool* is_new);

    // For the arrays between the operations: what is given back while operations are added serves
    // those that are added later.
    const std::shared_ptr<Arena>& arena() const { return arena_; }

    void run(Pool& pool);

    // Runs the operations added since `size()` was `from`.
    void run_from(Pool& pool, size_t from);

    size_t size() const { return ops_.size(); }

  private:
    struct Buffer {
        void* memory;
        size_t n_bytes;
    };
    struct Shared {
        SharedKey key;
        size_t n_bytes;
        void* memory;
    };
    std::shared_ptr<Arena> arena_;
    std::vector<Shared> shared_;
    std::vector<std::unique_ptr<Op>> owned_;
    std::vector<Op*> ops_;
    std::vector<Buffer> buffers_;
    std::vector<Buffer> passing_;  // of the call that is being added
};

}  // namespace octavo

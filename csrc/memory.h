// Buffers for activations and scratch, reused: a prompt's activations are megabytes per
// operation, and asking the system anew each time would cost more in page faults than the work.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace octavo {

// At least `n_bytes`, 64-byte aligned; contents undefined. Any thread.
void* acquire(size_t n_bytes);

// Gives back what `acquire(n_bytes)` returned; nullptr is allowed.
void release(void* memory, size_t n_bytes);

// Frees every buffer that is not in use.
void trim();

// Buffers that nobody else gets while it lives: those that were given back serve again, the latest
// first, as it is in the processor's caches. Any thread.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();

    // As above.
    void* acquire(size_t n_bytes);
    void release(void* memory, size_t n_bytes);

    // Whether the address lies in one of its buffers.
    bool holds(const void* p) const;

  private:
    struct Buffer {
        void* memory;
        size_t n_bytes;
    };
    mutable std::mutex mutex_;
    std::vector<Buffer> all_;
    std::vector<Buffer> free_;
};

}  // namespace octavo

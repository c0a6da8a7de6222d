// An operation is work in chunks; a program is operations in order. See pool.h for who runs them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

// What a worker brings to a chunk: its number and memory of its own, kept between chunks.
class Thread {
  public:
    explicit Thread(int index) : index_(index) {}
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    ~Thread();

    int index() const { return index_; }

    // At least `n_bytes` of scratch, 64-byte aligned, valid until the next call on this thread.
    void* scratch(size_t n_bytes);

  private:
    int index_;
    void* memory_ = nullptr;
    size_t capacity_ = 0;
};

// Arguments are fixed when it is made: pointers to arrays that others rewrite in place. An
// element of the result is computed wholly within one chunk, so results do not depend on how
// many threads there are.
class Op {
  public:
    virtual ~Op() = default;

    // Chunks of this run, read from the arguments' present contents; 0: nothing to do. Called once
    // a run, by the thread that finished the operation before. `n_threads` share the chunks. An
    // operation of one chunk is run by that thread at once, without telling the others.
    virtual int prepare(int n_threads) = 0;
    virtual void run(int chunk, Thread& thread) = 0;
};

}  // namespace octavo

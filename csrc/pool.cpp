#include "pool.h"

#include <chrono>

#include "memory.h"
#include "relax.h"

namespace octavo {

namespace {

constexpr int kChunkBits = 20;
constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;
constexpr uint64_t kIdleOp = 0xffffff;  // 24 bits
constexpr uint64_t kIdle = kIdleOp << (2 * kChunkBits);

uint64_t cursor_at(int op, int n_chunks) {
    return static_cast<uint64_t>(op) << (2 * kChunkBits) | static_cast<uint64_t>(n_chunks)
                                                               << kChunkBits;
}
int op_of(uint64_t cursor) {
    return static_cast<int>(cursor >> (2 * kChunkBits));
}
int n_chunks_of(uint64_t cursor) {
    return static_cast<int>(cursor >> kChunkBits & kChunkMask);
}
int chunk_of(uint64_t cursor) {
    return static_cast<int>(cursor & kChunkMask);
}

// Polls briefly, then offers the core to others: a waiting thread must not starve the one it
// waits for when both share a core with another program. Not sooner than a layer of a step takes
// on a card: who offers it all the time slows the thread that works beside it on the same core.
class Backoff {
  public:
    void wait() {
        if (++n_polls_ < kPolls)
            relax();
        else
            std::this_thread::yield();
    }
    bool is_long() const { return n_polls_ > kPolls + kYields; }

  private:
    static constexpr int kPolls = 5000;   // some 0.1 ms
    static constexpr int kYields = 1000;  // some 1 ms when nobody else wants the core
    int n_polls_ = 0;
};

}  // namespace

Thread::~Thread() {
    release(memory_, capacity_);
}

void* Thread::scratch(size_t n_bytes) {
    if (n_bytes > capacity_) {
        release(memory_, capacity_);
        capacity_ = n_bytes + n_bytes / 2;
        memory_ = acquire(capacity_);
    }
    return memory_;
}

Pool::Pool(int n_threads) : cursor_(kIdle) {
    for (int i = 0; i < n_threads; ++i) threads_.push_back(std::make_unique<Thread>(i));
    for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { serve(*threads_[i]); });
}

Pool::~Pool() {
    generation_.fetch_or(1);
    generation_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void Pool::run(Op* const* ops, int n_ops) {
    std::lock_guard lock(running_);
    ops_ = ops;
    n_ops_ = n_ops;
    advance(-1, *threads_[0]);
    if (op_of(cursor_.load(std::memory_order_relaxed)) == static_cast<int>(kIdleOp)) return;
    stir();
    work(*threads_[0]);
}

void Pool::stir() {
    generation_.fetch_add(2);
    if (n_parked_.load() > 0) generation_.notify_all();
}

// Takes chunks until the program's end. What a thread has done it tells when no chunk of the
// operation is left to take: once, since all of them write the same place.
void Pool::work(Thread& thread) {
    Backoff backoff;
    int n_own = 0;
    for (;;) {
        uint64_t cursor = cursor_.load(std::memory_order_acquire);
        if (chunk_of(cursor) < n_chunks_of(cursor))
            cursor = cursor_.fetch_add(1, std::memory_order_acq_rel);
        const int op = op_of(cursor);
        if (op == static_cast<int>(kIdleOp)) return;
        if (chunk_of(cursor) < n_chunks_of(cursor)) {
            backoff = Backoff();
            ops_[op]->run(chunk_of(cursor), thread);
            ++n_own;
        } else if (n_own == 0) {
            backoff.wait();
        } else {
            const int n_before = n_done_.fetch_add(n_own, std::memory_order_acq_rel);
            if (n_before + n_own == n_chunks_of(cursor)) advance(op, thread);
            n_own = 0;
        }
    }
}

// Moves the cursor behind operation `op`: to the next one that is worth sharing, or to idle.
void Pool::advance(int op, Thread& thread) {
    n_done_.store(0, std::memory_order_relaxed);
    for (int next = op + 1; next < n_ops_; ++next) {
        const int n_chunks = ops_[next]->prepare(n_threads());
        if (n_chunks > 1 && n_threads() > 1) {
            cursor_.store(cursor_at(next, n_chunks), std::memory_order_release);
            return;
        }
        for (int chunk = 0; chunk < n_chunks; ++chunk) ops_[next]->run(chunk, thread);
    }
    cursor_.store(kIdle, std::memory_order_release);
}

void Pool::serve(Thread& thread) {
    uint32_t seen = 0;
    for (;;) {
        Backoff backoff;
        uint32_t now = generation_.load(std::memory_order_acquire);
        while (now == seen && !backoff.is_long()) {
            backoff.wait();
            now = generation_.load(std::memory_order_acquire);
        }
        if (now == seen) {
            n_parked_.fetch_add(1);
            generation_.wait(seen);
            n_parked_.fetch_sub(1);
            now = generation_.load(std::memory_order_acquire);
        }
        if (now & 1) return;
        seen = now;
        work(thread);
    }
}

}  // namespace octavo

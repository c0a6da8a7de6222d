// Worker threads that run a program's operations one after the other, chunks in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "op.h"

namespace octavo {

// All threads take chunks from one cursor: (operation, chunks in it, next chunk) in 64 bits. The
// thread that finishes an operation's last chunk moves the cursor on; nobody waits for a thread
// that has taken no chunk, so a worker that the system has descheduled costs its own share only.
class Pool {
  public:
    explicit Pool(int n_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int n_threads() const { return static_cast<int>(threads_.size()); }

    // Runs ops[0], ops[1], ... to their end; the caller works too. A second caller waits.
    void run(Op* const* ops, int n_ops);

    // Wakes the workers, for a program that is about to come.
    void stir();

  private:
    void work(Thread& thread);
    void advance(int op, Thread& thread);
    void serve(Thread& thread);

    std::mutex running_;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::vector<std::thread> workers_;
    Op* const* ops_ = nullptr;
    int n_ops_ = 0;
    alignas(64) std::atomic<uint64_t> cursor_;
    alignas(64) std::atomic<int> n_done_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};  // odd: the pool is closing
    std::atomic<int> n_parked_{0};
};

}  // namespace octavo

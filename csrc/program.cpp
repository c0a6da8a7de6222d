#include "program.h"

namespace octavo {

Program::Program() : arena_(std::make_shared<Arena>()) {}

Program::~Program() {
    for (const Buffer& buffer : buffers_) release(buffer.memory, buffer.n_bytes);
}

void Program::add(Op* op) {
    owned_.emplace_back(op);
    ops_.push_back(op);
}

void* Program::buffer(size_t n_bytes) {
    buffers_.push_back({acquire(n_bytes), n_bytes});
    return buffers_.back().memory;
}

void* Program::shared(const SharedKey& key, size_t n_bytes, bool* is_new) {
    for (const Shared& known : shared_)
        if (known.key == key && known.n_bytes == n_bytes) return known.memory;
    *is_new = true;
    shared_.push_back({key, n_bytes, buffer(n_bytes)});
    return shared_.back().memory;
}

void* Program::passing(size_t n_bytes) {
    passing_.push_back({arena_->acquire(n_bytes), n_bytes});
    return passing_.back().memory;
}

void Program::end_call() {
    for (const Buffer& buffer : passing_) arena_->release(buffer.memory, buffer.n_bytes);
    passing_.clear();
}

void Program::run(Pool& pool) {
    run_from(pool, 0);
}

void Program::run_from(Pool& pool, size_t from) {
    pool.run(ops_.data() + from, static_cast<int>(ops_.size() - from));
}

}  // namespace octavo

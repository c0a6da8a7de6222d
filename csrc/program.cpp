#include "program.h"

#include "memory.h"

namespace octavo {

Program::Program() = default;

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

void Program::run(Pool& pool) {
    run_from(pool, 0);
}

void Program::run_from(Pool& pool, size_t from) {
    pool.run(ops_.data() + from, static_cast<int>(ops_.size() - from));
}

}  // namespace octavo

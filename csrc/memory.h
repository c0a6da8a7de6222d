// Buffers for activations and scratch, reused: a prompt's activations are megabytes per
// operation, and asking the system anew each time would cost more in page faults than the work.
#pragma once

#include <cstddef>

namespace octavo {

// At least `n_bytes`, 64-byte aligned; contents undefined. Any thread.
void* acquire(size_t n_bytes);

// Gives back what `acquire(n_bytes)` returned; nullptr is allowed.
void release(void* memory, size_t n_bytes);

// Frees every buffer that is not in use.
void trim();

}  // namespace octavo

#include "memory.h"

#include <array>
#include <bit>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace octavo {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kSteps = 4;  // size classes between two powers of two: at most a quarter is wasted

struct Store {
    std::mutex mutex;
    std::array<std::vector<void*>, 64 * kSteps> free;
};

Store& store() {
    static Store* s = new Store;  // never destroyed: arrays may outlive the module's statics
    return *s;
}

struct SizeClass {
    int index;
    size_t n_bytes;
};

SizeClass size_class(size_t n_bytes) {
    const size_t size = n_bytes < 256 ? 256 : n_bytes;
    const int power = std::bit_width(size - 1) - 1;  // 2^power < size <= 2^(power + 1)
    const size_t step = (size_t{1} << power) / kSteps;
    const size_t above = (size - (size_t{1} << power) + step - 1) / step;  // 1..kSteps
    return {power * kSteps + static_cast<int>(above) - 1, (size_t{1} << power) + above * step};
}

size_t alignment_of(size_t n_bytes) {
    return n_bytes >= kHugePage ? kHugePage : kAlignment;
}

}  // namespace

void* acquire(size_t n_bytes) {
    const SizeClass c = size_class(n_bytes);
    {
        std::lock_guard lock(store().mutex);
        auto& free = store().free[c.index];
        if (!free.empty()) {
            void* memory = free.back();
            free.pop_back();
            return memory;
        }
    }
    void* memory = ::operator new(c.n_bytes, std::align_val_t(alignment_of(c.n_bytes)));
#if defined(__linux__)
    if (c.n_bytes >= kHugePage) madvise(memory, c.n_bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

void release(void* memory, size_t n_bytes) {
    if (!memory) return;
    std::lock_guard lock(store().mutex);
    store().free[size_class(n_bytes).index].push_back(memory);
}

void trim() {
    std::lock_guard lock(store().mutex);
    for (size_t i = 0; i < store().free.size(); ++i) {
        const size_t power = i / kSteps;
        const size_t n_bytes =
            (size_t{1} << power) + (i % kSteps + 1) * ((size_t{1} << power) / kSteps);
        for (void* memory : store().free[i])
            ::operator delete(memory, std::align_val_t(alignment_of(n_bytes)));
        store().free[i].clear();
    }
}

Arena::~Arena() {
    for (const Buffer& buffer : all_) octavo::release(buffer.memory, buffer.n_bytes);
}

void* Arena::acquire(size_t n_bytes) {
    const size_t wanted = size_class(n_bytes).n_bytes;
    std::lock_guard lock(mutex_);
    for (size_t i = free_.size(); i-- > 0;) {
        if (free_[i].n_bytes != wanted) continue;
        void* memory = free_[i].memory;
        free_.erase(free_.begin() + static_cast<ptrdiff_t>(i));
        return memory;
    }
    all_.push_back({octavo::acquire(wanted), wanted});
    return all_.back().memory;
}

void Arena::release(void* memory, size_t n_bytes) {
    std::lock_guard lock(mutex_);
    free_.push_back({memory, size_class(n_bytes).n_bytes});
}

bool Arena::holds(const void* p) const {
    std::lock_guard lock(mutex_);
    const auto* at = static_cast<const char*>(p);
    for (const Buffer& buffer : all_) {
        const auto* begin = static_cast<const char*>(buffer.memory);
        if (at >= begin && at < begin + buffer.n_bytes) return true;
    }
    return false;
}

}  // namespace octavo

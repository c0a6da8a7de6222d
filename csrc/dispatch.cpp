#include "dispatch.h"

#include <cstring>

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {

#define LEVEL(name)               \
    namespace name {              \
    extern const Kernels kernels; \
    }
#include "levels.inc"
#undef LEVEL

namespace {

#if defined(__x86_64__) || defined(_M_X64)

struct Registers {
    uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers r{};
#if defined(_MSC_VER)
    int out[4];
    __cpuidex(out, static_cast<int>(leaf), static_cast<int>(subleaf));
    r = {static_cast<uint32_t>(out[0]), static_cast<uint32_t>(out[1]),
         static_cast<uint32_t>(out[2]), static_cast<uint32_t>(out[3])};
#else
    __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
#endif
    return r;
}

// Which register files the system saves: XCR0.
uint64_t saved_state() {
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    uint32_t eax, edx;
    __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return static_cast<uint64_t>(edx) << 32 | eax;
#endif
}

bool has(uint32_t bits, int bit) {
    return bits >> bit & 1;
}

bool can_run(const char* level) {
    if (std::strcmp(level, "baseline") == 0) return true;
    if (cpuid(0, 0).eax < 7) return false;
    const Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
    if (!has(one.ecx, 27)) return false;  // OSXSAVE
    const uint64_t saved = saved_state();
    const bool avx2 = (saved & 6) == 6 && has(one.ecx, 12) && has(one.ecx, 29) &&  // FMA, F16C
                      has(seven.ebx, 5) && has(seven.ebx, 3) && has(seven.ebx, 8);
    if (std::strcmp(level, "avx2") == 0) return avx2;
    if (std::strcmp(level, "avx_vnni") == 0) return avx2 && has(seven_one.eax, 4);
    if (std::strcmp(level, "avx512") == 0)
        return avx2 && (saved & 0xe6) == 0xe6 && has(seven.ebx, 16) && has(seven.ebx, 17) &&
               has(seven.ebx, 28) && has(seven.ebx, 30) && has(seven.ebx, 31) && has(seven.ecx, 11);
    return false;
}

#else

bool can_run(const char*) {
    return true;
}

#endif

const Kernels* const all_levels[] = {
#define LEVEL(name) &name::kernels,
#include "levels.inc"
#undef LEVEL
    nullptr};

struct Runnable {
    const Kernels* levels[sizeof(all_levels) / sizeof(*all_levels)] = {};
    const Kernels* in_force = nullptr;

    Runnable() {
        int n = 0;
        for (const Kernels* const* level = all_levels; *level; ++level)
            if (can_run((*level)->level)) levels[n++] = in_force = *level;
    }
};

Runnable& runnable() {
    static Runnable r;
    return r;
}

}  // namespace

const Kernels* const* runnable_levels() {
    return runnable().levels;
}

const Kernels& kernels() {
    return *runnable().in_force;
}

bool use_level(const char* name) {
    for (const Kernels* const* level = runnable_levels(); *level; ++level) {
        if (std::strcmp((*level)->level, name) != 0) continue;
        runnable().in_force = *level;
        return true;
    }
    return false;
}

}  // namespace octavo

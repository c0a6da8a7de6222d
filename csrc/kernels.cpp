// The table of one level. The format lists are made by CMake from the headers it finds.
#include "level.h"

#define OCTAVO_STRING2(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING2(x)

namespace octavo::OCTAVO_LEVEL {

#define FORMAT(stem) extern const FormatKernels format_##stem;
#include "quant_formats.inc"
#undef FORMAT
#define FORMAT(stem) extern const CacheKernels cache_##stem;
#include "cache_formats.inc"
#undef FORMAT

namespace {

const FormatKernels* const formats[] = {
#define FORMAT(stem) &format_##stem,
#include "quant_formats.inc"
#undef FORMAT
    nullptr};

const CacheKernels* const cache_formats[] = {
#define FORMAT(stem) &cache_##stem,
#include "cache_formats.inc"
#undef FORMAT
    nullptr};

}  // namespace

extern const Kernels kernels = {OCTAVO_STRING(OCTAVO_LEVEL),
                                formats,
                                cache_formats,
                                embed,
                                norm,
                                linear,
                                rope,
                                attend,
                                recur,
                                route,
                                glu,
                                experts,
                                add,
                                concat,
                                take,
                                softcap,
                                read_memory,
                                dot_peak,
                                fma_peak};

}  // namespace octavo::OCTAVO_LEVEL

// Memory that will be read soon, asked for while something else is computed.
#pragma once

#include <cstddef>

namespace octavo {

// Streams side by side, as the processor follows several of them better than one. Plain data: the
// functions are each level's own.
struct Ahead {
    static constexpr int kStreams = 4;
    static constexpr int kStepBytes = 64 * kStreams;
    const char* streams[kStreams];
    size_t at;     // from a stream's start
    size_t n_due;  // bytes of each stream
};

}  // namespace octavo

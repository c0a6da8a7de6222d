// Which instruction-set level runs.
#pragma once

#include "kernels.h"

namespace octavo {

// The levels of this build that the processor can run, best last; ends with nullptr.
const Kernels* const* runnable_levels();

// The level in force: the best, until `use_level` says otherwise.
const Kernels& kernels();

// False if there is no such level here.
bool use_level(const char* name);

}  // namespace octavo

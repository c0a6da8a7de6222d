// Activations for integer formats; linear.cpp says how they are used.
#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_LEVEL {

// Adds an operation that quantises x (H = 1, any number of rows, columns a multiple of 32). The
// program owns the result. `beside`: puts the rows side by side too, where there are as many as
// `dot` takes so.
QuantRows quantise(Program& program, const Heads& x, bool beside);

}  // namespace octavo::OCTAVO_LEVEL

// Activations for integer formats; linear.cpp says how they are used.
#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_LEVEL {

// Adds an operation that quantises x (H = 1, any number of rows, columns a multiple of 32). The
// program owns the result.
QuantRows quantise(Program& program, const Heads& x);

// Adds an operation that puts rows side by side, where there are as many as `dot` takes so.
QuantRows side_by_side(Program& program, const QuantRows& rows);

}  // namespace octavo::OCTAVO_LEVEL

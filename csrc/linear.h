// Activations for integer formats (quantise.cpp); linear.cpp says how they are used.
#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_LEVEL {

// Adds an operation that quantises x (H = 1, any number of rows, columns a multiple of 32). The
// program owns the result. `beside`: puts the rows side by side too, where there are as many as
// `dot` takes so.
QuantRows quantise(Program& program, const Heads& x, bool beside);

// Room for rows that the caller quantises, group by group; zeros.
QuantRows quant_rows(Program& program, int n_rows, int n_columns);

// Columns column .. column + n_columns - 1 of a row, both multiples of 32, from x: the same bits as
// if the whole row were quantised.
void quantise_columns(const float* x, int n_columns, const QuantRows& rows, int row, int column);

// Asks for what `dot` will read first of rows row0 .. row1 - 1: the beginnings of the streams that
// it makes of them. Further on it asks itself.
void ask_for(const BlockRows& rows, int row0, int row1);

}  // namespace octavo::OCTAVO_LEVEL

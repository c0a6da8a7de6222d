// The parts of the Python module that have files of their own.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

class Program;

void bind_arrays(nanobind::class_<Program>& program);
void bind_handoff(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_text(nanobind::module_& m);

}  // namespace octavo

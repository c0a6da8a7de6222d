// Buffers of memory.h for Python, as arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "memory.h"
#include "program.h"

namespace octavo {

namespace nb = nanobind;

namespace {

// An uninitialised float32 or int32 array from the pool of buffers; goes back when collected.
template <typename T>
nb::ndarray<nb::numpy, T> empty(const std::vector<size_t>& shape) {
    size_t n_bytes = sizeof(T);
    for (size_t extent : shape) n_bytes *= extent;
    struct Held {
        void* memory;
        size_t n_bytes;
    };
    auto* held = new Held{acquire(n_bytes), n_bytes};
    nb::capsule owner(held, [](void* p) noexcept {
        auto* h = static_cast<Held*>(p);
        release(h->memory, h->n_bytes);
        delete h;
    });
    return nb::ndarray<nb::numpy, T>(held->memory, shape.size(), shape.data(), owner);
}

// The same from the program's memory, to which it goes back.
template <typename T>
nb::ndarray<nb::numpy, T> empty_in(const Program& program, const std::vector<size_t>& shape) {
    size_t n_bytes = sizeof(T);
    for (size_t extent : shape) n_bytes *= extent;
    struct Held {
        std::shared_ptr<Arena> arena;
        void* memory;
        size_t n_bytes;
    };
    auto* held = new Held{program.arena(), program.arena()->acquire(n_bytes), n_bytes};
    nb::capsule owner(held, [](void* p) noexcept {
        auto* h = static_cast<Held*>(p);
        h->arena->release(h->memory, h->n_bytes);
        delete h;
    });
    return nb::ndarray<nb::numpy, T>(held->memory, shape.size(), shape.data(), owner);
}

}  // namespace

void bind_arrays(nb::class_<Program>& program) {
    program
        .def("empty_floats", empty_in<float>, nb::arg("shape"),
             "An uninitialised float32 array; operations added after its end reuse it.")
        .def("empty_ids", empty_in<int32_t>, nb::arg("shape"), "The same for int32.")
        .def(
            "owns",
            [](const Program& p, const nb::ndarray<nb::ro, nb::device::cpu>& x) {
                return p.arena()->holds(x.data());
            },
            nb::arg("x"), "Whether the array lies in memory of the program.");
}

void bind_memory(nb::module_& m) {
    m.def("empty_floats", empty<float>, nb::arg("shape"), "An uninitialised float32 array.");
    m.def("empty_ids", empty<int32_t>, nb::arg("shape"), "An uninitialised int32 array.");
    m.def("trim", trim, "Free all buffers that are not in use.");
}

}  // namespace octavo

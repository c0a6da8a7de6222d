// Arrays from Python, checked: the shapes that an operation expects, or an error that names the
// argument. For the bindings only.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ops.h"

namespace octavo {

namespace nb = nanobind;

// What an operation reads may lie in read-only memory, as mapped weights do.
using Floats = nb::ndarray<const float, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::device::cpu, nb::c_contig>;
using Bytes = nb::ndarray<const uint8_t, nb::device::cpu, nb::c_contig>;
using FloatsOut = nb::ndarray<float, nb::device::cpu>;
using IdsOut = nb::ndarray<int32_t, nb::device::cpu, nb::c_contig>;
using BytesOut = nb::ndarray<uint8_t, nb::device::cpu, nb::c_contig>;

[[noreturn]] inline void wrong(const std::string& what) {
    throw std::invalid_argument(what);
}

inline void require(bool holds, const char* what) {
    if (!holds) wrong(what);
}

// A (T, D) array as one head, a (T, H, d) array as it is.
inline Heads heads(const Floats& x, const char* name) {
    if (x.ndim() != 2 && x.ndim() != 3) wrong(std::string(name) + ": 2 or 3 axes expected");
    const bool flat = x.ndim() == 2;
    const size_t last = x.ndim() - 1;
    if (x.size() > 0 && x.shape(last) > 1 && x.stride(last) != 1)
        wrong(std::string(name) + ": the last axis must be contiguous");
    return {const_cast<float*>(x.data()),  // Heads serve inputs and outputs
            x.stride(0),
            flat ? 0 : x.stride(1),
            static_cast<int>(x.shape(0)),
            flat ? 1 : static_cast<int>(x.shape(1)),
            static_cast<int>(x.shape(last))};
}

template <typename Array>
auto* contiguous(const Array& x, const char* name) {
    int64_t stride = 1;
    for (size_t axis = x.ndim(); axis-- > 0; stride *= static_cast<int64_t>(x.shape(axis)))
        if (x.size() > 0 && x.shape(axis) > 1 && x.stride(axis) != stride)
            wrong(std::string(name) + ": a C-contiguous array expected");
    return x.data();
}

template <typename Array>
auto* floats(const Array& x, size_t n, const char* name) {
    if (x.size() != n)
        wrong(std::string(name) + ": " + std::to_string(n) + " floats expected, " +
              std::to_string(x.size()) + " given");
    return contiguous(x, name);
}

template <typename Array>
auto* ids(const Array& x, size_t n, const char* name) {
    if (x.size() != n)
        wrong(std::string(name) + ": " + std::to_string(n) + " ids expected, " +
              std::to_string(x.size()) + " given");
    return x.data();
}

}  // namespace octavo

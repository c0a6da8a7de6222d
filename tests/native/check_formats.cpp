// Checks unpacking and `linear` of every format at every level that the processor has, without
// Python in the process: for processors that are emulated. The argument is a file of blocks.py.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "dispatch.h"
#include "pool.h"
#include "program.h"

namespace {

using namespace octavo;

struct Record {
    std::string name;
    int n_rows, n_columns;
    std::vector<uint8_t> data;
    std::vector<float> weights;
};

std::vector<Record> read_records(const char* path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<Record> records;
    char name[16];
    int32_t sizes[3];
    while (file.read(name, sizeof name) &&
           file.read(reinterpret_cast<char*>(sizes), sizeof sizes)) {
        Record r{name, sizes[0], sizes[1], std::vector<uint8_t>(sizes[2]), {}};
        r.weights.resize(static_cast<size_t>(r.n_rows) * r.n_columns);
        file.read(reinterpret_cast<char*>(r.data.data()), sizes[2]);
        file.read(reinterpret_cast<char*>(r.weights.data()), r.weights.size() * sizeof(float));
        records.push_back(r);
    }
    return records;
}

std::vector<float> activations(size_t n) {
    std::vector<float> x(n);
    uint32_t state = 1;
    for (float& v : x) {
        state = state * 1664525u + 1013904223u;
        v = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-30f;
    }
    return x;
}

// x as the integer kernels see it.
void round_to_int8(std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); i += kGroup) {
        float peak = 0;
        for (int k = 0; k < kGroup; ++k) peak = std::fmax(peak, std::fabs(x[i + k]));
        for (int k = 0; k < kGroup; ++k)
            x[i + k] = std::nearbyint(x[i + k] * (127.0f / peak)) * (peak / 127.0f);
    }
}

bool unpacks(const FormatKernels& format, const Record& r) {
    std::vector<float> out(r.n_columns);
    for (int row = 0; row < r.n_rows; ++row) {
        const size_t row_bytes = r.data.size() / r.n_rows;
        format.unpack(r.data.data() + row * row_bytes, r.n_columns, out.data());
        if (std::memcmp(out.data(), &r.weights[static_cast<size_t>(row) * r.n_columns],
                        out.size() * sizeof(float)))
            return false;
    }
    return true;
}

bool multiplies(const Kernels& level, const FormatKernels& format, const Record& r, int n_tokens,
                Pool& pool) {
    std::vector<float> x = activations(static_cast<size_t>(n_tokens) * r.n_columns);
    std::vector<float> y(static_cast<size_t>(n_tokens) * r.n_rows);
    const BlockRows rows{r.data.data(), r.data.size() / r.n_rows, r.n_rows, r.n_columns};
    const Heads heads{x.data(), r.n_columns, 0, n_tokens, 1, r.n_columns};
    Program program;
    level.linear(program, LinearArgs{heads, 1, {{{&format, rows}, nullptr, y.data()}}});
    program.run(pool);
    if (!format.is_float) round_to_int8(x);
    for (int t = 0; t < n_tokens; ++t)
        for (int row = 0; row < r.n_rows; ++row) {
            double sum = 0, sizes = 0;
            for (int i = 0; i < r.n_columns; ++i) {
                const double term =
                    static_cast<double>(x[static_cast<size_t>(t) * r.n_columns + i]) *
                    r.weights[static_cast<size_t>(row) * r.n_columns + i];
                sum += term;
                sizes += std::fabs(term);
            }
            const double error = y[static_cast<size_t>(t) * r.n_rows + row] - sum;
            if (!(std::fabs(error) <= 1e-5 * sizes)) return false;
        }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<Record> records = read_records(argc > 1 ? argv[1] : "");
    Pool pool(1);
    int n_checks = 0, n_faults = 0;
    const auto expect = [&](bool holds, const Kernels& level, const Record& r, const char* what) {
        ++n_checks;
        if (holds) return;
        ++n_faults;
        std::printf("%s: %s is wrong: %s\n", level.level, r.name.c_str(), what);
    };
    for (auto* level = runnable_levels(); *level; ++level)
        for (auto* format = (*level)->formats; *format; ++format)
            for (const Record& r : records) {
                if (r.name != (*format)->name) continue;
                expect(unpacks(**format, r), **level, r, "unpack");
                for (int n_tokens : {1, 3, 8, 9})
                    expect(multiplies(**level, **format, r, n_tokens, pool), **level, r, "linear");
            }
    std::printf("%d checks, %d faults\n", n_checks, n_faults);
    return n_checks == 0 || n_faults != 0;
}

// The processor's half of a step that a card replays: in each layer it waits until the card has
// handed over tokens and the experts that it leaves, computes these, and answers.
// The card's half is in src/octavo/ops/gpu/handoff.py.
#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "program.h"
#include "relax.h"

namespace octavo {

namespace nb = nanobind;

namespace {

// A word of pinned memory that the card and the processor both touch.
using Flag = std::atomic<uint32_t>;
static_assert(sizeof(Flag) == sizeof(uint32_t) && Flag::is_always_lock_free);

using Clock = std::chrono::steady_clock;
using Flags = nb::ndarray<uint32_t, nb::device::cpu, nb::c_contig>;

constexpr int kPolls = 200'000;  // some 5 ms: longer than a layer takes; then the core is offered
constexpr int kPollsBetweenClocks = 1024;

// Whether the flag has reached `value` before the time is over. Values count on around 2^32.
bool wait_for(const Flag& flag, uint32_t value, Clock::time_point end) {
    for (int64_t n = 1;; ++n) {
        if (static_cast<int32_t>(flag.load(std::memory_order_acquire) - value) >= 0) return true;
        if (n < kPolls)
            relax();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        if ((n >= kPolls || n % kPollsBetweenClocks == 0) && Clock::now() >= end) return false;
    }
}

class Companion {
  public:
    Companion(const Flags& bell, const Flags& reply)
        : bell_(flag(bell, "bell")), reply_(flag(reply, "reply")) {}

    size_t size() const { return layers_.size(); }

    // Seconds since the start: waiting for bells, computing, and how many pairs of a token and an
    // expert were computed.
    double waited() const { return waited_.count(); }
    double computed() const { return computed_.count(); }
    size_t n_missed() const { return n_missed_; }

    // The program computes the experts `missed`, numbers below `n_experts` or -1, into `out`. The
    // card writes them.
    void add(Program& program, const IdsOut& missed, int n_experts, const FloatsOut& out) {
        layers_.push_back({&program, missed.data(), missed.size(), n_experts,
                           contiguous(out, "out"), out.size()});
    }

    // Answers layers from `first` on; -> how many are answered in all. Fewer than there are: the
    // bell of the next one has not rung for so many seconds.
    size_t run(Pool& pool, size_t first, double seconds) {
        const auto patience =
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
        pool.stir();  // between two steps the workers may have gone to sleep
        for (size_t i = first; i < layers_.size(); ++i) {
            const auto number = static_cast<uint32_t>(i + 1);
            const auto began = Clock::now();
            const bool has_rung = wait_for(bell_, number, began + patience);
            const auto rung = Clock::now();
            waited_ += rung - began;
            if (!has_rung) return i;
            n_missed_ += answer(layers_[i], pool);
            reply_.store(number, std::memory_order_release);
            computed_ += Clock::now() - rung;
        }
        return layers_.size();
    }

  private:
    struct Layer {
        Program* program;
        int32_t* missed;
        size_t n_pairs;
        int32_t n_experts;
        float* out;
        size_t n_out;
    };

    static Flag& flag(const Flags& array, const char* name) {
        if (array.size() != 1) wrong(std::string(name) + ": one number expected");
        return *reinterpret_cast<Flag*>(array.data());
    }

    // -> how many pairs of a token and an expert were computed.
    static size_t answer(const Layer& layer, Pool& pool) {
        size_t n_missed = 0;
        for (size_t i = 0; i < layer.n_pairs; ++i) {
            const int32_t id = layer.missed[i];
            // What a failed card left there must not be used as an index.
            const bool is_missed = id >= 0 && id < layer.n_experts;
            if (!is_missed) layer.missed[i] = -1;
            n_missed += is_missed;
        }
        if (n_missed > 0)
            layer.program->run(pool);
        else
            std::memset(layer.out, 0, layer.n_out * sizeof(float));
        return n_missed;
    }

    Flag& bell_;
    Flag& reply_;
    std::vector<Layer> layers_;
    std::chrono::duration<double> waited_{0}, computed_{0};
    size_t n_missed_ = 0;
};

}  // namespace

void bind_handoff(nb::module_& m) {
    nb::class_<Companion>(m, "Companion", "The processor's half of a card's step.")
        .def(nb::init<const Flags&, const Flags&>(), nb::arg("bell").noconvert(),
             nb::arg("reply").noconvert())
        .def("__len__", &Companion::size)
        .def_prop_ro("waited", &Companion::waited, "Seconds of waiting for bells since the start.")
        .def_prop_ro("computed", &Companion::computed, "Seconds of computing since the start.")
        .def_prop_ro("n_missed", &Companion::n_missed, "Experts computed, once for each token.")
        .def("add", &Companion::add, nb::arg("program"), nb::arg("missed").noconvert(),
             nb::arg("n_experts"), nb::arg("out").noconvert(),
             "Another layer; arrays and program must outlive it.")
        .def("run", &Companion::run, nb::arg("pool"), nb::arg("first"), nb::arg("seconds"),
             nb::call_guard<nb::gil_scoped_release>(),
             "Answer from a layer on; fewer than all: no bell for so many seconds.");
}

}  // namespace octavo

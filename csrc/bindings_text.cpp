// Text to ids for Python: check, release the GIL, call.
#include <nanobind/nanobind.h>

#include <mutex>

#include "arguments.h"
#include "bindings.h"
#include "merge.h"

namespace octavo {

namespace {

using Offsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Ranks = nb::ndarray<const uint32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

// Mergers have scratch of their own: callers take turns.
struct BytePairs : BytePairMerger {
    using BytePairMerger::BytePairMerger;
    std::mutex turn;
};

struct Scores : ScoreMerger {
    using ScoreMerger::ScoreMerger;
    std::mutex turn;
};

Strings strings(const nb::bytes& text, const Offsets& offsets, const char* name) {
    require(offsets.size() > 0, "offsets: one more than there are strings expected");
    const size_t n = offsets.size() - 1;
    require(n < INT32_MAX / 4 && text.size() < INT32_MAX / 2, "strings of 1 GiB or more");
    for (size_t i = 0; i < n; ++i)
        if (offsets.data()[i] > offsets.data()[i + 1]) wrong(std::string(name) + ": offsets fall");
    if (offsets.data()[0] != 0 || offsets.data()[n] != static_cast<int64_t>(text.size()))
        wrong(std::string(name) + ": offsets do not match the text");
    return {text.c_str(), offsets.data(), n};
}

std::string_view utf8(nb::handle text) {
    Py_ssize_t n_bytes = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &n_bytes);
    if (!bytes) nb::raise_python_error();
    require(n_bytes < INT32_MAX, "text of 2 GiB or more");
    return {bytes, static_cast<size_t>(n_bytes)};
}

nb::list to_list(const std::vector<int32_t>& ids) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(ids.size()));
    if (!list) nb::raise_python_error();
    for (size_t i = 0; i < ids.size(); ++i)
        PyList_SetItem(list, static_cast<Py_ssize_t>(i), PyLong_FromLong(ids[i]));
    return nb::steal<nb::list>(list);
}

nb::list encode_words(BytePairs& self, const nb::list& words) {
    std::vector<std::string_view> views;
    views.reserve(words.size());
    for (nb::handle word : words) views.push_back(utf8(word));
    std::vector<int32_t> ids;
    {
        nb::gil_scoped_release release;
        const std::lock_guard lock(self.turn);
        ids.reserve(2 * views.size());
        for (std::string_view word : views) self.encode(word, ids);
    }
    return to_list(ids);
}

nb::list encode_text(Scores& self, const nb::str& text) {
    const std::string_view view = utf8(text);
    std::vector<int32_t> ids;
    {
        nb::gil_scoped_release release;
        const std::lock_guard lock(self.turn);
        ids.reserve(view.size() / 3);
        self.encode(view, ids);
    }
    return to_list(ids);
}

}  // namespace

void bind_text(nb::module_& m) {
    nb::class_<BytePairs>(m, "BytePairMerger", "Words to ids by ranked merges.")
        .def(
            "__init__",
            [](BytePairs* self, const nb::bytes& tokens, const Offsets& token_offsets,
               const nb::bytes& merges, const Offsets& merge_offsets, const nb::bytes& letters,
               const Offsets& letter_offsets, bool whole_words) {
                const Strings spelled = strings(letters, letter_offsets, "letters");
                require(spelled.size == 256, "letters: 256 expected");
                new (self)
                    BytePairs(strings(tokens, token_offsets, "tokens"),
                              strings(merges, merge_offsets, "merges"), spelled, whole_words);
            },
            nb::arg("tokens"), nb::arg("token_offsets"), nb::arg("merges"),
            nb::arg("merge_offsets"), nb::arg("letters"), nb::arg("letter_offsets"),
            nb::arg("whole_words"))
        .def("encode", encode_words, nb::arg("words"),
             nb::sig("def encode(self, words: list[str]) -> list[int]"),
             "Ids of the words, one after the other.");

    nb::class_<Scores>(m, "ScoreMerger", "Text to ids by the scores of tokens.")
        .def(
            "__init__",
            [](Scores* self, const nb::bytes& tokens, const Offsets& token_offsets,
               const Ranks& ranks, const Ids& byte_ids) {
                const Strings texts = strings(tokens, token_offsets, "tokens");
                require(ranks.size() == texts.size, "ranks: one for each token expected");
                new (self) Scores(texts, ranks.data(), ids(byte_ids, 256, "byte_ids"));
            },
            nb::arg("tokens"), nb::arg("token_offsets"), nb::arg("ranks"), nb::arg("byte_ids"))
        .def("encode", encode_text, nb::arg("text"),
             nb::sig("def encode(self, text: str) -> list[int]"),
             "Ids of a text in which spaces are U+2581.");
}

}  // namespace octavo

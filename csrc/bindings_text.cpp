// Text to ids for Python: check, release the GIL, call.
#include <nanobind/nanobind.h>

#include <mutex>
#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "merge.h"

namespace octavo {

namespace {

using Characters = nb::ndarray<const uint8_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
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

// Checked, and kept alive with the arrays that they lie in.
class StringTable {
  public:
    StringTable(Characters text, Offsets starts, int64_t gap)
        : text_(std::move(text)), starts_(std::move(starts)), gap_(gap) {
        require(starts_.size() > 0, "starts: one more than there are strings expected");
        const size_t n = starts_.size() - 1;
        require(n < INT32_MAX / 4 && text_.size() < INT32_MAX / 2, "strings of 1 GiB or more");
        require(gap >= 0 && gap < INT32_MAX, "gap: 0 or more expected");
        const int64_t* at = starts_.data();
        require(at[0] >= 0, "starts: a negative one");
        for (size_t i = 0; i < n; ++i)
            if (at[i] > at[i + 1] || at[i + 1] - at[i] < gap)
                wrong("starts fall, or leave no room for the gap");
        require(at[n] <= static_cast<int64_t>(text_.size()), "starts reach past the text");
    }
    Strings view() const {
        return {reinterpret_cast<const char*>(text_.data()), starts_.data(), starts_.size() - 1,
                gap_};
    }

  private:
    Characters text_;
    Offsets starts_;
    int64_t gap_;
};

}  // namespace

void bind_text(nb::module_& m) {
    nb::class_<StringTable>(m, "Strings", "Strings in a row: i is text[starts[i]+gap:starts[i+1]].")
        .def(nb::init<Characters, Offsets, int64_t>(), nb::arg("text"), nb::arg("starts"),
             nb::arg("gap"));

    nb::class_<BytePairs>(m, "BytePairMerger", "Words to ids by ranked merges.")
        .def(
            "__init__",
            [](BytePairs* self, const StringTable& tokens, const StringTable& merges,
               const StringTable& letters, bool whole_words) {
                require(letters.view().size == 256, "letters: 256 expected");
                nb::gil_scoped_release release;
                new (self) BytePairs(tokens.view(), merges.view(), letters.view(), whole_words);
            },
            nb::arg("tokens"), nb::arg("merges"), nb::arg("letters"), nb::arg("whole_words"))
        .def("encode", encode_words, nb::arg("words"),
             nb::sig("def encode(self, words: list[str]) -> list[int]"),
             "Ids of the words, one after the other.");

    nb::class_<Scores>(m, "ScoreMerger", "Text to ids by the scores of tokens.")
        .def(
            "__init__",
            [](Scores* self, const StringTable& tokens, const Ranks& ranks, const Ids& byte_ids) {
                const Strings texts = tokens.view();
                require(ranks.size() == texts.size, "ranks: one for each token expected");
                const int32_t* bytes = ids(byte_ids, 256, "byte_ids");
                nb::gil_scoped_release release;
                new (self) Scores(texts, ranks.data(), bytes);
            },
            nb::arg("tokens"), nb::arg("ranks"), nb::arg("byte_ids"))
        .def("encode", encode_text, nb::arg("text"),
             nb::sig("def encode(self, text: str) -> list[int]"),
             "Ids of a text in which spaces are U+2581.");
}

}  // namespace octavo

// Words to token ids: neighbouring pieces are joined, best pair first, as byte-pair vocabularies
// (by the rank of a merge) and SentencePiece vocabularies (by the score of a token) want it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Strings in a row, each behind `gap` bytes that are not its own, such as the length that a file
// writes in front: item i is text[offsets[i] + gap, offsets[i + 1]).
struct Strings {
    const char* text;
    const int64_t* offsets;
    size_t size;
    int64_t gap;

    std::string_view operator[](size_t i) const {
        const int64_t start = offsets[i] + gap;
        return {text + start, static_cast<size_t>(offsets[i + 1] - start)};
    }
    size_t n_bytes() const {
        return static_cast<size_t>(offsets[size] - offsets[0]) - size * static_cast<size_t>(gap);
    }
};

// Distinct texts, numbered as they come: a text's number is its symbol.
class Symbols {
  public:
    explicit Symbols(size_t n_expected, size_t n_bytes_expected);
    // -1 if no such text was added.
    int32_t find(std::string_view text) const;
    // The symbol of `text`, a new one if need be.
    int32_t add(std::string_view text);
    size_t size() const { return n_; }

  private:
    struct Entry {
        uint32_t hash;
        int32_t symbol;  // -1: free
        uint32_t start, n_bytes;
    };
    // Where the text is, or would be.
    size_t place_of(std::string_view text, uint32_t hash) const;
    void grow();

    size_t n_ = 0;
    std::string bytes_;  // less than 4 GiB
    std::vector<Entry> entries_;
};

// The ids of short words met before; a word takes the place of another one. Text repeats itself.
class WordMemory {
  public:
    WordMemory();
    // Appends the word's ids, if it is remembered.
    bool recall(std::string_view word, std::vector<int32_t>& ids) const;
    void keep(std::string_view word, const int32_t* ids, size_t n_ids);

  private:
    struct Slot {  // a cache line
        uint8_t n_bytes, n_ids;
        char word[30];
        int32_t ids[8];
    };
    std::vector<Slot> slots_;
};

// The pieces of one word, chained by the place of their first byte.
class Chain {
  public:
    static constexpr uint32_t kNever = UINT32_MAX;
    struct Join {
        uint32_t rank;  // kNever: these two are never joined
        int32_t symbol;
    };

    void begin(size_t n_bytes) { links_.resize(n_bytes), last_ = -1; }
    void append(int32_t start, int32_t end, int32_t symbol);
    // Joins neighbours until no pair has a rank: lowest rank first, of equal ones the leftmost.
    // `rule(left symbol, right symbol, start, end)` returns a Join. O(n log n).
    template <typename Rule>
    void join(const Rule& rule);
    // Calls `use(symbol, start, end)` for each piece that is left.
    template <typename Use>
    void each(const Use& use) const;

  private:
    struct Link {
        int32_t symbol, left, end;  // end: also the start of the next one; -1: joined to the left
    };
    struct Candidate {
        uint64_t order;  // rank, then place
        int32_t middle, end, symbol;
        bool operator<(const Candidate& other) const { return order > other.order; }
    };
    template <typename Rule>
    bool propose(int32_t start, const Rule& rule);

    std::vector<Link> links_;
    std::vector<Candidate> queue_;
    int32_t last_ = -1;
};

// Not for two threads at once: scratch and memory are inside.
class BytePairMerger {
  public:
    // `letters`: how the vocabulary spells each of the 256 bytes. `merges`: "left right", best
    // first. `whole_words`: a word that is a token is that token, whatever the merges give.
    BytePairMerger(Strings tokens, Strings merges, Strings letters, bool whole_words);
    // Appends the ids of a word. What the vocabulary cannot say is left out.
    void encode(std::string_view word, std::vector<int32_t>& ids);

  private:
    struct Pair {
        uint64_t key;
        uint32_t rank;
        int32_t joined;
    };
    Pair& place_of(uint64_t key);
    void add_merge(std::string_view line, uint32_t rank, std::string& joined);
    int32_t whole_token(std::string_view word);

    Symbols symbols_;
    std::vector<int32_t> tokens_;  // of each symbol; -1: a step on the way to a token
    std::vector<Pair> pairs_;
    std::string letters_[256];
    int32_t letter_symbols_[256];
    bool whole_words_;
    std::string spelled_;
    WordMemory memory_;
    Chain chain_;
};

// Not for two threads at once: scratch and memory are inside.
class ScoreMerger {
  public:
    // `ranks`: of each token, lowest first; Chain::kNever for those that no text may become.
    // `byte_ids`: 256, for the bytes of what is no token; negative ones are left out.
    ScoreMerger(Strings tokens, const uint32_t* ranks, const int32_t* byte_ids);
    // Appends the ids of a text in which spaces are U+2581.
    void encode(std::string_view text, std::vector<int32_t>& ids);

  private:
    bool may_join(std::string_view before_space) const;
    void encode_word(std::string_view word, std::vector<int32_t>& ids);

    Symbols symbols_;
    std::vector<int32_t> tokens_;  // of each symbol
    std::vector<uint32_t> ranks_;  // of each symbol
    int32_t byte_ids_[256];
    size_t longest_ = 0;             // bytes of the longest token
    std::vector<uint32_t> bridges_;  // characters that some token has before a space; sorted
    WordMemory memory_;
    Chain chain_;
};

}  // namespace octavo

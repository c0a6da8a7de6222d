#include "merge.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace octavo {

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
constexpr size_t kMemorySlots = size_t{1} << 15;     // 2 MiB
constexpr uint64_t kFreeKey = UINT64_MAX;

template <typename T>
uint64_t read(const char* place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

uint64_t mix(uint64_t x) {
    x *= 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
    return x ^ (x >> 32);
}

uint64_t hash_of(std::string_view text) {
    const char* p = text.data();
    size_t n = text.size();
    uint64_t h = mix(n);
    for (; n >= 8; n -= 8, p += 8) h = mix(h ^ read<uint64_t>(p));
    if (n >= 4) return mix(mix(h ^ read<uint32_t>(p) ^ read<uint32_t>(p + n - 4) << 32));
    if (n == 0) return mix(h);
    const uint64_t rest =
        read<uint8_t>(p) | read<uint8_t>(p + n / 2) << 8 | read<uint8_t>(p + n - 1) << 16;
    return mix(mix(h ^ rest));
}

uint64_t pair_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

bool continues(char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// The bytes of the last character, as one number.
uint32_t last_character(std::string_view text) {
    size_t n = 1;
    while (n < 4 && n < text.size() && continues(text[text.size() - n])) ++n;
    uint32_t packed = 0;
    for (char byte : text.substr(text.size() - n))
        packed = packed << 8 | static_cast<uint8_t>(byte);
    return packed;
}

}  // namespace

Symbols::Symbols(size_t n_expected, size_t n_bytes_expected)
    : entries_(std::bit_ceil(2 * n_expected + 2), Entry{0, -1, 0, 0}) {
    bytes_.reserve(n_bytes_expected);
}

size_t Symbols::place_of(std::string_view text, uint32_t hash) const {
    const size_t mask = entries_.size() - 1;
    size_t i = hash & mask;
    for (; entries_[i].symbol >= 0; i = (i + 1) & mask) {
        const Entry& entry = entries_[i];
        if (entry.hash == hash && entry.n_bytes == text.size() &&
            std::memcmp(bytes_.data() + entry.start, text.data(), text.size()) == 0)
            break;
    }
    return i;
}

int32_t Symbols::find(std::string_view text) const {
    return entries_[place_of(text, static_cast<uint32_t>(hash_of(text)))].symbol;
}

int32_t Symbols::add(std::string_view text) {
    if (2 * n_ >= entries_.size()) grow();
    const auto hash = static_cast<uint32_t>(hash_of(text));
    Entry& entry = entries_[place_of(text, hash)];
    if (entry.symbol < 0) {
        entry = {hash, static_cast<int32_t>(n_++), static_cast<uint32_t>(bytes_.size()),
                 static_cast<uint32_t>(text.size())};
        bytes_ += text;
    }
    return entry.symbol;
}

void Symbols::grow() {
    std::vector<Entry> old(2 * entries_.size(), Entry{0, -1, 0, 0});
    old.swap(entries_);
    const size_t mask = entries_.size() - 1;
    for (const Entry& entry : old) {
        if (entry.symbol < 0) continue;
        size_t i = entry.hash & mask;
        while (entries_[i].symbol >= 0) i = (i + 1) & mask;
        entries_[i] = entry;
    }
}

WordMemory::WordMemory() : slots_(kMemorySlots) {}

bool WordMemory::recall(std::string_view word, std::vector<int32_t>& ids) const {
    if (word.size() > sizeof Slot::word) return false;
    const Slot& slot = slots_[hash_of(word) % kMemorySlots];
    if (slot.n_bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0)
        return false;
    ids.insert(ids.end(), slot.ids, slot.ids + slot.n_ids);
    return true;
}

void WordMemory::keep(std::string_view word, const int32_t* ids, size_t n_ids) {
    if (word.size() > sizeof Slot::word || n_ids > std::size(Slot{}.ids)) return;
    Slot& slot = slots_[hash_of(word) % kMemorySlots];
    slot.n_bytes = static_cast<uint8_t>(word.size());
    slot.n_ids = static_cast<uint8_t>(n_ids);
    std::copy(word.begin(), word.end(), slot.word);
    std::copy(ids, ids + n_ids, slot.ids);
}

void Chain::append(int32_t start, int32_t end, int32_t symbol) {
    links_[start] = {symbol, last_, end};
    last_ = start;
}

template <typename Rule>
bool Chain::propose(int32_t start, const Rule& rule) {
    const int32_t middle = links_[start].end;
    if (middle >= static_cast<int32_t>(links_.size())) return false;
    const Link& right = links_[middle];
    const Join found = rule(links_[start].symbol, right.symbol, start, right.end);
    if (found.rank == kNever) return false;
    const uint64_t order = static_cast<uint64_t>(found.rank) << 32 | static_cast<uint32_t>(start);
    queue_.push_back({order, middle, right.end, found.symbol});
    return true;
}

template <typename Rule>
void Chain::join(const Rule& rule) {
    const auto n = static_cast<int32_t>(links_.size());
    queue_.clear();
    for (int32_t start = 0; start < n; start = links_[start].end) propose(start, rule);
    std::make_heap(queue_.begin(), queue_.end());
    while (!queue_.empty()) {
        const Candidate best = queue_.front();
        std::pop_heap(queue_.begin(), queue_.end());
        queue_.pop_back();
        const auto start = static_cast<int32_t>(static_cast<uint32_t>(best.order));
        // A pair goes stale when either side has grown or was joined to its left.
        if (links_[start].end != best.middle || links_[best.middle].end != best.end) continue;
        links_[best.middle].end = -1;
        links_[start].symbol = best.symbol;
        links_[start].end = best.end;
        if (best.end < n) links_[best.end].left = start;
        if (propose(start, rule)) std::push_heap(queue_.begin(), queue_.end());
        const int32_t before = links_[start].left;
        if (before >= 0 && propose(before, rule)) std::push_heap(queue_.begin(), queue_.end());
    }
}

template <typename Use>
void Chain::each(const Use& use) const {
    const auto n = static_cast<int32_t>(links_.size());
    for (int32_t start = 0; start < n; start = links_[start].end)
        use(links_[start].symbol, start, links_[start].end);
}

BytePairMerger::BytePairMerger(Strings tokens, Strings merges, Strings letters, bool whole_words)
    : symbols_(tokens.size + 256, tokens.n_bytes()),
      pairs_(std::bit_ceil(2 * merges.size + 2), Pair{kFreeKey, Chain::kNever, -1}),
      whole_words_(whole_words) {
    tokens_.reserve(tokens.size + 256);
    for (size_t i = 0; i < tokens.size; ++i) {
        const int32_t symbol = symbols_.add(tokens[i]);
        tokens_.resize(symbols_.size(), -1);
        tokens_[symbol] = static_cast<int32_t>(i);  // of equal texts the last counts
    }
    for (int byte = 0; byte < 256; ++byte) {
        letters_[byte] = letters[byte];
        letter_symbols_[byte] = symbols_.add(letters[byte]);
    }
    std::string joined;
    for (size_t i = 0; i < merges.size; ++i) add_merge(merges[i], static_cast<uint32_t>(i), joined);
    tokens_.resize(symbols_.size(), -1);
}

void BytePairMerger::add_merge(std::string_view line, uint32_t rank, std::string& joined) {
    const size_t space = line.find(' ');
    // No letter is a space: a line with none or several can never apply.
    if (space == line.npos || line.find(' ', space + 1) != line.npos) return;
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    if (left.empty() || right.empty()) return;
    const int32_t left_symbol = symbols_.add(left), right_symbol = symbols_.add(right);
    Pair& pair = place_of(pair_key(left_symbol, right_symbol));
    if (pair.key != kFreeKey) return;  // of equal lines the first counts
    joined.assign(left).append(right);
    pair = {pair_key(left_symbol, right_symbol), rank, symbols_.add(joined)};
}

// Where the pair is, or would be.
BytePairMerger::Pair& BytePairMerger::place_of(uint64_t key) {
    const size_t mask = pairs_.size() - 1;
    size_t i = mix(mix(key)) & mask;
    while (pairs_[i].key != key && pairs_[i].key != kFreeKey) i = (i + 1) & mask;
    return pairs_[i];
}

int32_t BytePairMerger::whole_token(std::string_view word) {
    spelled_.clear();
    for (char byte : word) spelled_ += letters_[static_cast<uint8_t>(byte)];
    const int32_t symbol = symbols_.find(spelled_);
    return symbol < 0 ? -1 : tokens_[symbol];
}

void BytePairMerger::encode(std::string_view word, std::vector<int32_t>& ids) {
    if (memory_.recall(word, ids)) return;
    const size_t n_before = ids.size();
    const int32_t whole = whole_words_ ? whole_token(word) : -1;
    if (whole >= 0) {
        ids.push_back(whole);
    } else {
        const auto n = static_cast<int32_t>(word.size());
        chain_.begin(word.size());
        for (int32_t i = 0; i < n; ++i)
            chain_.append(i, i + 1, letter_symbols_[static_cast<uint8_t>(word[i])]);
        chain_.join([&](int32_t left, int32_t right, int32_t, int32_t) -> Chain::Join {
            const Pair& pair = place_of(pair_key(left, right));
            return {pair.rank, pair.joined};
        });
        chain_.each([&](int32_t symbol, int32_t, int32_t) {
            if (tokens_[symbol] >= 0) ids.push_back(tokens_[symbol]);
        });
    }
    memory_.keep(word, ids.data() + n_before, ids.size() - n_before);
}

ScoreMerger::ScoreMerger(Strings tokens, const uint32_t* ranks, const int32_t* byte_ids)
    : symbols_(tokens.size, tokens.n_bytes()) {
    std::copy(byte_ids, byte_ids + 256, byte_ids_);
    tokens_.reserve(tokens.size);
    ranks_.reserve(tokens.size);
    for (size_t i = 0; i < tokens.size; ++i) {
        const std::string_view text = tokens[i];
        const int32_t symbol = symbols_.add(text);
        tokens_.resize(symbols_.size());
        ranks_.resize(symbols_.size());
        tokens_[symbol] = static_cast<int32_t>(i);  // of equal texts the last counts
        ranks_[symbol] = ranks[i];
        longest_ = std::max(longest_, text.size());
        for (size_t at = text.find(kSpace, 1); at < text.npos; at = text.find(kSpace, at + 1))
            bridges_.push_back(last_character(text.substr(0, at)));
    }
    std::sort(bridges_.begin(), bridges_.end());
    bridges_.erase(std::unique(bridges_.begin(), bridges_.end()), bridges_.end());
}

// Whether a token may hold the last character together with a space that follows it.
bool ScoreMerger::may_join(std::string_view before_space) const {
    return before_space.ends_with(kSpace) ||
           std::binary_search(bridges_.begin(), bridges_.end(), last_character(before_space));
}

void ScoreMerger::encode(std::string_view text, std::vector<int32_t>& ids) {
    // Words end where no token can reach across, so that each can be remembered.
    size_t start = 0;
    for (size_t at = text.find(kSpace, 1); at < text.npos; at = text.find(kSpace, at + 1)) {
        if (may_join(text.substr(start, at - start))) continue;
        encode_word(text.substr(start, at - start), ids);
        start = at;
    }
    if (start < text.size()) encode_word(text.substr(start), ids);
}

void ScoreMerger::encode_word(std::string_view word, std::vector<int32_t>& ids) {
    if (memory_.recall(word, ids)) return;
    const size_t n_before = ids.size();
    chain_.begin(word.size());
    for (size_t start = 0; start < word.size();) {
        size_t end = start + 1;
        while (end < word.size() && continues(word[end])) ++end;
        chain_.append(static_cast<int32_t>(start), static_cast<int32_t>(end),
                      symbols_.find(word.substr(start, end - start)));
        start = end;
    }
    chain_.join([&](int32_t, int32_t, int32_t start, int32_t end) -> Chain::Join {
        const auto n = static_cast<size_t>(end - start);
        const int32_t symbol = n > longest_ ? -1 : symbols_.find(word.substr(start, n));
        return {symbol < 0 ? Chain::kNever : ranks_[symbol], symbol};
    });
    chain_.each([&](int32_t symbol, int32_t start, int32_t end) {
        if (symbol >= 0 && ranks_[symbol] != Chain::kNever) {
            ids.push_back(tokens_[symbol]);
            return;
        }
        for (char byte : word.substr(start, end - start)) {
            const int32_t token = byte_ids_[static_cast<uint8_t>(byte)];
            if (token >= 0) ids.push_back(token);
        }
    });
    memory_.keep(word, ids.data() + n_before, ids.size() - n_before);
}

}  // namespace octavo

"""DeepSeek Coder: line ends, words, signs, CJK runs and digits, each cut in turn."""

PATTERNS = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}",
)
ALIASES: tuple[str, ...] = ()
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = False

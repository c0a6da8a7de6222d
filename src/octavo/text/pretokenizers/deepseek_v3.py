"""DeepSeek V3 and R1: digits by threes, CJK runs, then words and signs."""

PATTERNS = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
ALIASES: tuple[str, ...] = ("deepseek3", "hunyuan-dense")
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = False

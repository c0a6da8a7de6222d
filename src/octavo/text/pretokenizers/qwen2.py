"""Qwen 2 to 3: as Llama 3, but each digit alone."""

PATTERNS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
ALIASES: tuple[str, ...] = ("deepseek-r1-qwen", "megrez")
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = False

"""GPT-2: words with their leading space, runs of digits, runs of other signs."""

PATTERNS = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
ALIASES: tuple[str, ...] = ("gpt-2", "phi-2", "roberta-bpe")
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = True

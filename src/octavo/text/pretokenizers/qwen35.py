"""Qwen 3.5 and 3.6: as Qwen 2, but combining marks belong to their letters."""

PATTERNS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
ALIASES: tuple[str, ...] = ()
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = False

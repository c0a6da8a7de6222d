"""Where a file names no rule: runs of punctuation and threes of digits stand alone."""

from octavo.text.pretokenizers import gpt2

PATTERNS = (
    r"[\p{P}\$\+<=>\^~\|]+",
    *gpt2.PATTERNS,
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
ALIASES: tuple[str, ...] = ()
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = True

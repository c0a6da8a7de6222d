"""SmolLM and the StarCoder family: each digit alone, then as GPT-2."""

from octavo.text.pretokenizers import gpt2

PATTERNS = (r"\p{N}", *gpt2.PATTERNS)
ALIASES: tuple[str, ...] = ("starcoder", "refact", "command-r", "codeshell")
ADD_BOS = False
IGNORE_MERGES = False
CLEAN_SPACES = False

"""How fast a model's tokenizer encodes a text: python benchmarks/tokenizing.py MODEL.gguf TEXT"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from octavo.gguf.reader import open_gguf
from octavo.text.tokenizer import Tokenizer

_ROUNDS = 3


def main(model: str, path: str) -> None:
    """Print the time to the first id, then millions of tokens a second of each round.

    Times are this thread's own, so that other work on the machine counts less.
    """
    text = Path(path).read_text("utf-8")
    with open_gguf(model) as file:
        start = time.thread_time()
        tokenizer = Tokenizer.from_metadata(file.metadata)
        tokenizer.encode("a")
        print(f"first id after {time.thread_time() - start:.2f} s")
        for _ in range(_ROUNDS):
            start = time.thread_time()
            n_tokens = len(tokenizer.encode(text))
            rate = n_tokens / (time.thread_time() - start) / 1e6
            print(f"{n_tokens} tokens, {rate:.2f} M a second")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Coverage-guided fuzzing of the GGUF reader, for long runs by hand. Needs `pip install atheris`.

python tests/fuzz_gguf.py CORPUS_FOLDER -max_total_time=600
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports():
    import octavo.gguf.reader  # noqa: F401  (instrumented before the tests import it)

from test_gguf_fuzz import everything_in, seeds

_FILE = Path(tempfile.mkdtemp()) / "x.gguf"


def one_input(data: bytes) -> None:
    """Any error that is not ours ends the run and leaves the input behind."""
    _FILE.write_bytes(data)
    everything_in(_FILE)


def main() -> None:
    corpus = next((Path(arg) for arg in sys.argv[1:] if not arg.startswith("-")), None)
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (corpus / f"seed{number}.gguf").write_bytes(seed)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Small vocabularies with all that real ones have: merges or scores, specials, a template."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

_TEXT = (
    "The river was low that summer, and the ferry could not cross before noon. People waited on "
    "the stones and talked about the weather, the price of bread and the new bridge that nobody "
    "had started to build. Some of them had walked since the morning; others had come by cart. "
    "When the water rose the ferryman counted heads, took the coins and pushed off without a word. "
    "In the middle of the river it was quiet. A child asked why the other side looked the same as "
    "this one, and her mother said that it was the same, only later."
)
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

CHATML = """\
{%- if tools %}<|im_start|>system
# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Answer a call as <tool_call>
{"name": NAME, "arguments": OBJECT}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>
{% endif %}{% endif %}"""

_TURNS = """\
{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message.role }}
{{ message.content }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""


def byte_level(pre: str, n_tokens: int | None = None) -> dict[str, Any]:
    """Metadata of a byte-level BPE vocabulary of 363 tokens, or `n_tokens` with unused ones."""
    alphabet = list(byte_letters().values())
    merges = _train([_as_letters(word) for word in _words()], 100)
    tokens = [*alphabet, *(a + b for a, b in merges)]
    kinds = [_NORMAL] * len(tokens)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    visible = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    tokens += control + visible
    kinds += [_CONTROL] * len(control) + [_USER] * len(visible)
    end = tokens.index("<|im_end|>")
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        **_padded(tokens, kinds, n_tokens),
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges],
        "tokenizer.ggml.bos_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def sentencepiece(n_tokens: int | None = None) -> dict[str, Any]:
    """Metadata of a scored vocabulary with byte tokens, as Gemma's, of an odd size."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    kinds = [_CONTROL] * 3 + [_UNKNOWN] + [_CONTROL] * 2
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    kinds += [_BYTE] * 256
    words = [tuple(word.replace(" ", "\u2581")) for word in _words()]
    merged = [a + b for a, b in _train(words, 100)]
    letters = sorted({letter for word in words for letter in word})
    pieces = merged + letters
    scores = [0.0] * len(tokens) + [-float(rank) for rank in range(len(pieces))]
    tokens += pieces
    kinds += [_NORMAL] * len(pieces)
    n_tokens = n_tokens or len(tokens) + 1 - len(tokens) % 2
    scores += [-1e6] * (n_tokens - len(tokens))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        **_padded(tokens, kinds, n_tokens),
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": _TURNS,
    }


@cache
def byte_letters() -> dict[int, str]:
    """GPT-2's letter for each byte: printable ones stand for themselves, others from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return dict(sorted(letters.items()))


def _padded(tokens: list[str], kinds: list[int], n_tokens: int | None) -> dict[str, Any]:
    n_more = (n_tokens or len(tokens)) - len(tokens)
    assert n_more >= 0, f"the vocabulary itself has {len(tokens)} tokens"
    return {
        "tokenizer.ggml.tokens": tokens + [f"[PAD{i}]" for i in range(n_more)],
        "tokenizer.ggml.token_type": kinds + [_UNUSED] * n_more,
    }


def _words() -> list[str]:
    first, *rest = _TEXT.split(" ")
    return [first, *(f" {word}" for word in rest)]


def _as_letters(word: str) -> tuple[str, ...]:
    return tuple(byte_letters()[byte] for byte in word.encode())


def _train(words: list[tuple[str, ...]], n_merges: int) -> list[tuple[str, str]]:
    """Byte-pair merges, most frequent first."""
    merges: list[tuple[str, str]] = []
    for _ in range(n_merges):
        pairs = Counter(pair for word in words for pair in zip(word, word[1:], strict=False))
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = [_merge(word, best) for word in words]
    return merges


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return tuple(out)

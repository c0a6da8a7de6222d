"""JSON as it is sent: compact, and always valid, whatever was given to repeat."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic_core import to_json
from starlette.responses import JSONResponse


def encode(value: Any) -> bytes:
    """Compact JSON.

    What JSON and UTF-8 have no form for, and requests can bring all the same, is replaced: half a
    surrogate becomes a question mark, numbers that are not finite become null.
    """
    try:
        return to_json(value, inf_nan_mode="null")  # a fifth of the time that `json` takes
    except ValueError:  # half a surrogate, or nested deeper than it goes
        return _plainly(value).encode("utf-8", "replace")


class Json(JSONResponse):
    """An answer as JSON."""

    def render(self, content: Any) -> bytes:
        return encode(content)


def _plainly(value: Any) -> str:
    try:
        return _text(value)
    except ValueError:
        return _text(_finite(value))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Run large open language models from GGUF files on an ordinary computer.

    import octavo

    with octavo.load("demo") as model:
        print(model.chat("Why is the sky blue?"))

Importing this is light: what is heavy is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from octavo.errors import (
    BusyError,
    CacheFullError,
    CancelledError,
    ContextFullError,
    DownloadError,
    FileFormatError,
    MemoryPlanError,
    NotFoundError,
    OctavoError,
    RequestError,
    SettingError,
    TemplateError,
    UnsupportedError,
)
from octavo.types import (
    ChatRequest,
    GrammarSpec,
    Message,
    SamplingParams,
    ToolCall,
    ToolChoice,
    Usage,
)

if TYPE_CHECKING:
    from octavo.chat import Answer, Reply
    from octavo.engine.engine import Engine
    from octavo.loading import load
    from octavo.plan.plan import Plan
    from octavo.plan.planner import Wishes
    from octavo.session import Session
    from octavo.text.split import Content, Reasoning, ToolCalled
    from octavo.text.tokenizer import Tokenizer

# What is imported when it is first asked for, and from where.
_HOMES = {
    "Answer": "octavo.chat",
    "Content": "octavo.text.split",
    "Engine": "octavo.engine.engine",
    "Plan": "octavo.plan.plan",
    "Reasoning": "octavo.text.split",
    "Reply": "octavo.chat",
    "Session": "octavo.session",
    "Tokenizer": "octavo.text.tokenizer",
    "ToolCalled": "octavo.text.split",
    "Wishes": "octavo.plan.planner",
    "load": "octavo.loading",
}

__all__ = [
    "Answer",
    "BusyError",
    "CacheFullError",
    "CancelledError",
    "ChatRequest",
    "Content",
    "ContextFullError",
    "DownloadError",
    "Engine",
    "FileFormatError",
    "GrammarSpec",
    "MemoryPlanError",
    "Message",
    "NotFoundError",
    "OctavoError",
    "Plan",
    "Reasoning",
    "Reply",
    "RequestError",
    "SamplingParams",
    "Session",
    "SettingError",
    "TemplateError",
    "Tokenizer",
    "ToolCall",
    "ToolCalled",
    "ToolChoice",
    "UnsupportedError",
    "Usage",
    "Wishes",
    "load",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""What it costs that a model thinks, turn after turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo import models
from octavo.kv.state import PAGE_TOKENS
from octavo.plan import memory
from octavo.plan.plan import COUNTED_TOKENS, Plan, Thinking

if TYPE_CHECKING:
    from octavo.gguf.meta import Metadata
    from octavo.plan.layout import PlanFile
    from octavo.text.template import Template


def thinking(file: PlanFile, plan: Plan) -> Thinking | None:
    """The price of earlier turns' thinking; None: the model does not think.

    Raises:
        UnsupportedError, FileFormatError: the model cannot be run.
    """
    template = template_of(file.metadata)
    if template is None or template.reasoning_tags is None:
        return None
    layers = models.read_config(file.metadata).layers
    page = memory.page_bytes(layers, plan.cache_format)
    prefill = plan.expected and plan.expected.prefill
    return Thinking(
        is_kept=template.keeps_thinking,
        cache_bytes=COUNTED_TOKENS * page // PAGE_TOKENS,
        read_seconds=COUNTED_TOKENS / prefill if prefill else None,
    )


def forgets(metadata: Metadata) -> bool:
    """Whether a model thinks, and its template cannot keep the thinking of earlier turns."""
    template = template_of(metadata)
    return (
        template is not None and template.reasoning_tags is not None and not template.keeps_thinking
    )


def template_of(metadata: Metadata) -> Template | None:
    """The file's chat template, if it has one."""
    from octavo.text.template import Template  # with all it needs, for those who ask only
    from octavo.text.tokenizer import Tokenizer

    return Template.from_metadata(metadata, Tokenizer.from_metadata(metadata))

"""Tools for models whose chat template has no place for them: told in a system message.

The template stays the model's own; a few lines before it put the declarations into the messages,
in the form of Hermes, which many models were trained on or can follow from its description.
"""

from __future__ import annotations

from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer

# The name of the outer tag selects the dialect `text/formats/hermes.py`.
_FIRST = """\
{%- if tools -%}
{%- set told -%}
You answer with calls of these functions:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor -%}
</tools>
For each call write a JSON object with name and arguments of the function between tags:
<tool_call>
{"name": FUNCTION_NAME, "arguments": ARGUMENTS_OBJECT}
</tool_call>
{%- endset -%}
{%- if messages[0].role == "system" -%}
{%- set told = messages[0].content ~ "\\n\\n" ~ told -%}
{%- set messages = messages[1:] -%}
{%- endif -%}
{%- set messages = [{"role": "system", "content": told}] + messages -%}
{%- endif -%}
"""


def with_tools(template: Template, tokenizer: Tokenizer) -> Template:
    """The template itself if it shows tools to the model; else one that does."""
    return template if template.has_tools else Template(_FIRST + template.source, tokenizer)

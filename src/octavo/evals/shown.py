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
You can call functions. They are declared here, one in a line, with JSON schemas of their arguments:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor -%}
</tools>
Call the function that serves the question. Write nothing but the call, in this form:
<tool_call>
{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}
</tool_call>
Several calls follow one another, each in its own tags.
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

"""What coding agents need in order to talk to a server: variables, and arguments before the user's.

Nothing is written to their configuration: it all lasts as long as the run. Which variables there
are is said by code.claude.com/docs/en/env-vars, developers.openai.com/codex/config-reference and
opencode.ai/docs/config.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field
from enum import StrEnum

from octavo.record import dataclass

HOUR_MS = 3_600_000  # a long prompt on a slow computer takes minutes before its first token
MAX_OUTPUT_TOKENS = 32_000  # of one answer; a smaller context gives a quarter of itself


class ClientName(StrEnum):
    """The programs that `octavo launch` knows."""

    claude = "claude"
    codex = "codex"
    opencode = "opencode"


@dataclass(frozen=True)
class Target:
    """A server and the model to be used there. `context` in tokens; None: not known yet."""

    address: str
    model: str
    context: int | None
    key: str = field(repr=False)

    @property
    def output_tokens(self) -> int | None:
        """Most tokens of one answer, so that the prompt has room beside it."""
        return None if self.context is None else min(MAX_OUTPUT_TOKENS, self.context // 4)


@dataclass(frozen=True)
class Setup:
    """How a client is run. `variables` are set, `unset` are taken away from its environment."""

    variables: dict[str, str]
    arguments: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class Client:
    """A program: its title, how it is installed, and what it needs."""

    title: str
    install: str
    setup: Callable[[Target], Setup]


def _claude(target: Target) -> Setup:
    """Claude Code speaks Anthropic's API. Its smaller models would be others: all are this one."""
    models = ("MODEL", *(f"DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")))
    variables = {
        "ANTHROPIC_BASE_URL": target.address,
        "ANTHROPIC_AUTH_TOKEN": target.key,
        "ANTHROPIC_API_KEY": "",  # any value would win over the token
        **{f"ANTHROPIC_{name}": target.model for name in models},
        "CLAUDE_CODE_SUBAGENT_MODEL": target.model,
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # differs in each request, at the prompt's start
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "API_TIMEOUT_MS": str(HOUR_MS),
    }
    if target.context is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.context)
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(target.context)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.output_tokens)
    elsewhere = tuple(f"CLAUDE_CODE_USE_{cloud}" for cloud in ("BEDROCK", "VERTEX", "FOUNDRY"))
    return Setup(variables, unset=("CLAUDE_CODE_OAUTH_TOKEN", *elsewhere))


def _codex(target: Target) -> Setup:
    """Codex speaks OpenAI's Responses API; `-c` sets a key of its configuration for one run."""
    provider: dict[str, str | int] = {
        "name": "Octavo",
        "base_url": f"{target.address}/v1",
        "wire_api": "responses",
        "env_key": "OCTAVO_API_KEY",
        "stream_idle_timeout_ms": HOUR_MS,
    }
    values: dict[str, str | int] = {"model": target.model, "model_provider": "octavo"}
    values |= {f"model_providers.octavo.{key}": value for key, value in provider.items()}
    if target.context is not None:
        values["model_context_window"] = target.context
        values["model_auto_compact_token_limit"] = target.context * 3 // 4
    # Values are TOML, whose basic strings are those of JSON.
    pairs = [("-c", f"{key}={json.dumps(value)}") for key, value in values.items()]
    arguments = tuple(part for pair in pairs for part in pair)
    return Setup({"OCTAVO_API_KEY": target.key}, arguments)


def _opencode(target: Target) -> Setup:
    """OpenCode speaks OpenAI's chats. Without the limits it never makes a conversation shorter."""
    model: dict[str, object] = {"name": target.model, "tool_call": True}
    if target.context is not None:
        model["limit"] = {"context": target.context, "output": target.output_tokens}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Octavo",
        "options": {
            "baseURL": f"{target.address}/v1",
            "apiKey": "{env:OCTAVO_API_KEY}",
            "timeout": HOUR_MS,
        },
        "models": {target.model: model},
    }
    name = f"octavo/{target.model}"
    config = {"provider": {"octavo": provider}, "model": name, "small_model": name}
    content = json.dumps(config, separators=(",", ":"))
    return Setup({"OCTAVO_API_KEY": target.key, "OPENCODE_CONFIG_CONTENT": content})


CLIENTS = {
    ClientName.claude: Client("Claude Code", "npm install -g @anthropic-ai/claude-code", _claude),
    ClientName.codex: Client("Codex", "npm install -g @openai/codex", _codex),
    ClientName.opencode: Client("OpenCode", "npm install -g opencode-ai", _opencode),
}

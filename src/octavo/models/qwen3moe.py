"""Qwen3 with routed experts in every block; no shared expert."""

from octavo.models.qwen3 import build, read

__all__ = ["build", "read"]

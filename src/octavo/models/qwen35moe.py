"""Qwen3.5 and 3.6 with routed and shared experts in every block."""

from octavo.models.qwen35 import build, read

__all__ = ["build", "read"]

"""The attribute names of the two generations of OpenTelemetry's conventions for generative AI, and what of a prompt may be in them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import attrs
import msgspec

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
LATEST = "gen_ai_latest_experimental"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_WITH_CONTENT = frozenset({"true", "1", "span_only", "span_and_event"})

PROVIDERS: Mapping[str, str] = {"claude": "anthropic", "codex": "openai", "gemini": "gcp.gemini"}
"""Kind of an agent → the name of its provider in the conventions; other kinds are named as they are."""


@attrs.frozen
class Conventions:
    """`latest`: the newest names, else those of version 1.36. `content`: prompts, answers and what tools get and give are recorded."""

    latest: bool
    content: bool

    @classmethod
    def from_environment(cls) -> Conventions:
        """As the standard variables of this process have it."""
        words = os.environ.get(OPT_IN, "").split(",")
        content = os.environ.get(CONTENT, "").strip().lower() in _WITH_CONTENT
        return cls(LATEST in (word.strip() for word in words), content)

    def provider(self, kind: str) -> dict[str, str]:
        """The provider of a kind of agent."""
        return {
            "gen_ai.provider.name" if self.latest else "gen_ai.system": PROVIDERS.get(
                kind.split("-")[0], kind
            )
        }

    def cached(self, read: int | None, written: int | None) -> dict[str, int]:
        """Tokens from and for a cache; version 1.36 has no names for them."""
        names = {
            "gen_ai.usage.cache_read.input_tokens": read,
            "gen_ai.usage.cache_creation.input_tokens": written,
        }
        return {name: number for name, number in names.items() if number is not None} if self.latest else {}

    def message(self, role: str, text: str) -> tuple[str, str, str]:
        """A message as an attribute: the name of its event (of version 1.36; empty: it is of the span), its own name, its value."""
        if not self.latest:
            return ("gen_ai.user.message" if role == "user" else "gen_ai.choice"), "content", text
        part = {"role": role, "parts": [{"type": "text", "content": text}]}
        if role == "assistant":
            part["finish_reason"] = "stop"
        name = "gen_ai.input.messages" if role == "user" else "gen_ai.output.messages"
        return "", name, msgspec.json.encode([part]).decode()

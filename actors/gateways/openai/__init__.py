"""The chat API of OpenAI's clients: `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

from proctor.actors.gateways.openai.routes import routes

__all__ = ["routes"]

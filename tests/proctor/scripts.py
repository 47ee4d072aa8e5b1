"""Scripts of agents, and fleet files that name them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Script = Callable[..., str]
Fleet = Callable[..., Path]
ANSWERS = ('{"reply": "All is well, {prompt}"}',)
HANGS = ('{"say": "I begin."}', '{"sleep": 600}', '{"reply": "never"}')


def agent(name: str, **keys: str) -> str:
    """A table of a scripted agent; `keys` are its other keys as TOML has them."""
    return "\n".join(
        ["[[agents]]", 'kind = "scripted"', f'name = "{name}"', *(f"{k} = {v}" for k, v in keys.items())]
    )

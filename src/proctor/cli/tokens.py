"""The token of a server's clients: in a variable of the environment, or in a file that it names."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.actors.errors import BadOption


def token_of(variable: str | None) -> str | None:
    """The token in the environment variable of this name; a file's, where it begins with `@`."""
    if variable is None:
        return None
    said = os.environ.get(variable, "")
    if not said:
        raise BadOption(f"--token-env {variable}: this variable is not set, or empty")
    if not said.startswith("@"):
        return said
    try:
        return Path(said[1:]).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--token-env {variable}: {said[1:]!r} cannot be read: {error}") from None

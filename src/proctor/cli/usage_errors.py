"""What is wrong with the words of a command, in a line on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "http": ("hypercorn", "starlette", "jsonschema_rs", "prometheus_client"),
    "mcp": ("mcp", "jsonschema_rs"),
}
"""What an extra brings, for the commands that need it."""


def complain(text: str) -> None:
    """A line on stderr, if there is one."""
    from proctor.cli.log import as_line

    stderr: TextIO | None = sys.stderr
    if stderr is not None:
        stderr.write(as_line(text, os.environ))


def missing_of(*extras: str) -> str:
    """What to say when the packages of these extras are not all there, "" when they are."""
    from importlib.util import find_spec

    names = dict.fromkeys(name for extra in extras for name in EXTRAS[extra])
    missing = [name for name in names if find_spec(name) is None]
    return f"this needs {', '.join(missing)}: pip install 'proctor[{','.join(extras)}]'" if missing else ""

"""Usage errors of a command, one line each on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "http": ("starlette", "h11", "jsonschema_rs", "prometheus_client"),
    "mcp": ("mcp", "jsonschema_rs"),
    "top": ("textual",),
}
"""Extra → the packages that its commands import."""


def complain(text: str) -> None:
    """Write a line to stderr, if it is open."""
    from proctor.cli.ui.log_format import as_line

    stderr: TextIO | None = sys.stderr
    if stderr is not None:
        stderr.write(as_line(text, os.environ))


def missing_of(*extras: str) -> str:
    """The error text for packages of these extras that are not installed, "" when all are."""
    from importlib.util import find_spec

    names = dict.fromkeys(name for extra in extras for name in EXTRAS[extra])
    missing = [name for name in names if find_spec(name) is None]
    return f"this needs {', '.join(missing)}: pip install 'proctor[{','.join(extras)}]'" if missing else ""

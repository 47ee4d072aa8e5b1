"""Where a CLI's executable is, and which version.

Order (R022): the explicit path, the environment variable, PATH, the well-known install places. The first that is
there decides: an explicit path that does not exist is an error, not a reason to look further. The result is absolute
and is used for every start (R024).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from proctor.actors.errors import NotExecutable, NotInstalled, VersionCheckFailed
from proctor.protocols.dialect import Version


@attrs.frozen(kw_only=True)
class Product:
    """One CLI as its makers ship it: the program's name, the variable that may name it, usual places, how to get it."""

    name: str
    program: str
    variable: str
    places: tuple[str, ...]
    install: str


CLAUDE_CODE = Product(
    name="Claude Code",
    program="claude",
    variable="PROCTOR_CLAUDE",
    places=("~/.local/bin", "~/.claude/local", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g @anthropic-ai/claude-code",
)

OPENCODE = Product(
    name="OpenCode",
    program="opencode",
    variable="PROCTOR_OPENCODE",
    places=("~/.opencode/bin", "~/.local/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g opencode-ai",
)


def find(
    product: Product, explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """The absolute path of the executable. Raises `NotInstalled` with every place searched, or `NotExecutable`."""
    environ = os.environ if environ is None else environ
    if explicit is not None:
        return _must_run(product, Path(explicit), f"the path given, {os.fspath(explicit)!r}")
    if named := environ.get(product.variable):
        return _must_run(product, Path(named), f"{product.variable}={named!r}")
    path = environ.get("PATH", os.defpath)
    if found := shutil.which(product.program, path=path):
        return Path(found).absolute()
    places = [Path(p).expanduser() for p in product.places]
    if found := shutil.which(product.program, path=os.pathsep.join(map(str, places))):
        return Path(found).absolute()
    searched = [
        f"{product.variable} (not set)",
        f"{product.program!r} on PATH ({path})",
        *(f"{p}/{product.program}" for p in product.places),
    ]
    raise NotInstalled(product.name, searched, product.install)


async def version(path: Path, *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Version:
    """What `--version` says, as three numbers. Raises `VersionCheckFailed` with the output seen (R026)."""
    output = ""
    with trio.move_on_after(timeout):
        try:
            done = await trio.run_process(
                [path, "--version"], capture_stdout=True, capture_stderr=True, check=False, env=env
            )
        except OSError as error:
            raise VersionCheckFailed(str(path), "", f"cannot be started: {error.strerror}") from error
        output = (done.stdout + done.stderr).decode("utf-8", "replace")
        if done.returncode == 0 and (match := re.search(r"(\d+)\.(\d+)\.(\d+)", output)):
            return int(match[1]), int(match[2]), int(match[3])
        raise VersionCheckFailed(str(path), output, f"exit status {done.returncode}, expected a version")
    raise VersionCheckFailed(str(path), output, f"no answer within {timeout:g} s")


def _must_run(product: Product, path: Path, source: str) -> Path:
    path = path.expanduser().absolute()
    if not path.exists():
        raise NotInstalled(product.name, [source], product.install)
    if path.is_dir():
        raise NotExecutable(product.name, str(path), "it is a directory")
    if not os.access(path, os.X_OK):
        raise NotExecutable(product.name, str(path), "no execute permission")
    return path

"""The location of a CLI's executable, and its version.

Searched in order: the explicit path, the environment variable, PATH, the usual install folders; the first that exists decides. The
result is absolute and is used for every start of an agent. A batch file is refused.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from proctor.actors.errors import NotExecutable, NotInstalled, VersionCheckFailed
from proctor.protocols.dialect import Version
from proctor.runtime.exits import ExitReason, ExitStatus, Normal
from proctor.runtime.processes import Command, ProcessError, Step, open_process


@attrs.frozen(kw_only=True)
class Product:
    """One CLI as its makers ship it: the program's name, the variable that may name it ("" for none), usual places, how to get it.

    `native` maps a system and machine (`linux x86_64`) to the place of the native program, seen from the folder that
    holds the package, where what is on PATH only is a script that starts it: `launcher`.
    """

    name: str
    program: str
    variable: str
    places: tuple[str, ...]
    install: str
    launcher: str = ""
    native: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict[str, tuple[str, ...]])


CLAUDE_CODE = Product(
    name="Claude Code",
    program="claude",
    variable="PROCTOR_CLAUDE",
    places=("~/.local/bin", "~/.claude/local", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g @anthropic-ai/claude-code",
)

_CODEX_TARGETS: Mapping[str, tuple[str, str]] = {
    "linux x86_64": ("codex-linux-x64", "x86_64-unknown-linux-musl"),
    "linux aarch64": ("codex-linux-arm64", "aarch64-unknown-linux-musl"),
    "darwin x86_64": ("codex-darwin-x64", "x86_64-apple-darwin"),
    "darwin arm64": ("codex-darwin-arm64", "aarch64-apple-darwin"),
}

CODEX_CLI = Product(
    name="Codex",
    program="codex",
    variable="PROCTOR_CODEX",
    places=("~/.local/bin", "~/.npm-global/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g @openai/codex",
    launcher="bin/codex.js",
    native={
        machine: (
            f"node_modules/@openai/{package}/vendor/{target}/bin/codex",
            f"../{package}/vendor/{target}/bin/codex",
            f"../@openai/{package}/vendor/{target}/bin/codex",
            f"vendor/{target}/bin/codex",
        )
        for machine, (package, target) in _CODEX_TARGETS.items()
    },
)
"""npm's `codex` is a script that, on Node 20, stays as a parent: one more process, and one that a SIGKILL orphans from."""

OPENCODE = Product(
    name="OpenCode",
    program="opencode",
    variable="PROCTOR_OPENCODE",
    places=("~/.opencode/bin", "~/.local/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g opencode-ai",
)

GEMINI = Product(
    name="Gemini CLI",
    program="gemini",
    variable="PROCTOR_GEMINI",
    places=("~/.local/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g @google/gemini-cli",
)

CODEX_ACP = Product(
    name="codex-acp",
    program="codex-acp",
    variable="PROCTOR_CODEX_ACP",
    places=("~/.local/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g @agentclientprotocol/codex-acp",
)

CLAUDE_ACP = Product(
    name="claude-agent-acp",
    program="claude-agent-acp",
    variable="PROCTOR_CLAUDE_ACP",
    places=("~/.local/bin", "/usr/local/bin", "/opt/homebrew/bin"),
    install="npm install -g @agentclientprotocol/claude-agent-acp",
)

SPEAKING_ACP: Mapping[str, Product] = {
    product.program: product for product in (OPENCODE, GEMINI, CODEX_ACP, CLAUDE_ACP)
}
"""The programs known to speak the Agent Client Protocol, by name."""


MAX_VERSION_OUTPUT = 65536
"""Bytes that a program may write when it is asked for its version."""

BATCH_SUFFIXES = frozenset({".bat", ".cmd", ".ps1"})
"""What a shell of Windows runs: arguments that it would read as its own words can be made to say anything."""


def unknown_product(program: str) -> Product:
    """A program that is looked for on PATH alone, as nothing more is known about it."""
    return Product(
        name=program, program=program, variable="", places=(), install="the installer of its makers"
    )


def find_program(
    product: Product, explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """The absolute path of the executable, the native one where that found only starts it.

    Raises `NotInstalled` with every place searched, or `NotExecutable`.
    """
    environ = os.environ if environ is None else environ
    if explicit is not None:
        return native_program(
            product, _must_run(product, Path(explicit), f"the path given, {os.fspath(explicit)!r}")
        )
    if product.variable and (named := environ.get(product.variable)):
        return native_program(product, _must_run(product, Path(named), f"{product.variable}={named!r}"))
    path = environ.get("PATH", os.defpath)
    homes = (os.path.expanduser(place) for place in product.places)
    places = os.pathsep.join(place for place in homes if os.path.isabs(place))  # without a home a ~ stays
    # PATH wins over the usual places: the user's own choice of a version
    if found := shutil.which(product.program, path=path) or shutil.which(product.program, path=places):
        return native_program(product, Path(found).absolute())
    searched = [
        *([f"{product.variable} (not set)"] if product.variable else []),
        f"{product.program!r} on PATH ({path})",
        *(f"{p}/{product.program}" for p in product.places),
    ]
    raise NotInstalled(product.name, searched, product.install)


def native_program(product: Product, found: Path) -> Path:
    """The native program behind a launcher that npm installed, else what was found. It stays where its package has it:
    it needs its neighbours."""
    # PATH has a link into the package, and its neighbours are found from its end only
    real = found.resolve()
    if not product.launcher or not real.as_posix().endswith(f"/{product.launcher}"):
        return found
    package = real.parents[product.launcher.count("/")]
    machine = f"{platform.system()} {platform.machine()}".lower()
    for place in product.native.get(machine, ()):
        if os.access(program := (package / place).resolve(), os.X_OK):
            return program
    return found


async def version(path: Path, *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Version:
    """The version that `--version` reports, as three numbers. Raises `VersionCheckFailed` with the output seen.

    Whatever the program does, it and what it has started are gone then; no more than `MAX_VERSION_OUTPUT` bytes of it are read.
    """
    output = bytearray()
    with trio.move_on_after(timeout):
        try:
            reason = await _answer(Command((str(path), "--version"), env or os.environ, stdin="null"), output)
        except ProcessError as error:
            raise VersionCheckFailed(str(path), "", f"cannot be started: {error}") from error
        text = output.decode("utf-8", "replace")
        # a number in the text of a failure, such as that of Node, is not the version of this program
        if isinstance(reason, Normal) and (match := re.search(r"(\d+)\.(\d+)\.(\d+)", text)):
            return int(match[1]), int(match[2]), int(match[3])
        ended = "exit status 0" if isinstance(reason, Normal) else str(reason)
        raise VersionCheckFailed(str(path), text, f"{ended}, expected a version")
    raise VersionCheckFailed(str(path), output.decode("utf-8", "replace"), f"no answer within {timeout:g} s")


async def _answer(command: Command, output: bytearray) -> ExitReason | str:
    # Under a guard: a program that is asked for its version may start others.
    async with open_process(command, ladder=(Step("kill"),), guard=True, on_stderr=output.extend) as process:
        while chunk := await process.receive():
            output += chunk
            if len(output) > MAX_VERSION_OUTPUT:
                return f"more than {MAX_VERSION_OUTPUT} bytes"
        reason = await process.wait()
    # its stderr is in `output` already, and would stand in the error twice
    return attrs.evolve(reason, stderr=b"") if isinstance(reason, ExitStatus) else reason


def _must_run(product: Product, path: Path, source: str) -> Path:
    path = Path(os.path.expanduser(path)).absolute()
    if not os.path.lexists(path):
        raise NotInstalled(product.name, [source], product.install)
    if path.is_dir():
        raise NotExecutable(product.name, str(path), "it is a directory")
    if path.suffix.lower() in BATCH_SUFFIXES:
        raise NotExecutable(product.name, str(path), "it is a batch file; name the program that it starts")
    if not os.access(path, os.X_OK):
        raise NotExecutable(product.name, str(path), "no execute permission")
    return path

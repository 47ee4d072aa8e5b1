"""The real CLIs under test, installed from npm by this folder's lock file.

`install` gives the executable of each pinned alias of `package.json`. The packages land in
`node_modules/<fingerprint>/` beside this file, where the fingerprint covers the pins, the lock file and the platform:

- a tree that is there is complete: it is filled under another name and renamed when npm and the check are done;
- an unchanged lock file needs neither npm nor a network;
- of several runs that start together one installs and the others wait for it (`flock`);
- no package script is run: a native executable is taken from the platform package that npm chose, so the installed
  Node's version does not matter to it (Claude Code 2.1.330 asks for 22 and npm only warns). Gemini CLI is run by Node.

As a program it installs and prints one line per executable; exit 1 and one line on stderr when it can not.
Not handled: two checkouts do not share a tree, and a machine npm has no platform package for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREES = HERE / "node_modules"
PINS = ("package.json", "package-lock.json")
NPM_SECONDS = 600

# Where the program of a package is, seen from the folder that npm has put it or its platform package in.
PROGRAMS: Mapping[str, str] = {
    "@anthropic-ai/claude-code": "@anthropic-ai/claude-code-*/claude",
    "@agentclientprotocol/codex-acp": "{alias}/dist/index.js",
    "@google/gemini-cli": "{alias}/bundle/gemini.js",
    "@openai/codex": "@openai/codex-*/vendor/*/bin/codex",
    "opencode-linux-x64": "{alias}/bin/opencode",
}

Say = Callable[[str], None]


class InstallError(Exception):
    """A pinned CLI can not be had on this machine; the text says why and what to do."""


def pinned() -> dict[str, str]:
    """Each alias of `package.json` with its exact npm package: `claude-2.1.330` → `@anthropic-ai/claude-code@2.1.330`.

    Optional ones are packages of one platform; OpenCode is only pinned for Linux on x86-64.
    """
    manifest: dict[str, dict[str, str]] = json.loads((HERE / "package.json").read_text())
    native = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    wanted = manifest["dependencies"] | (manifest["optionalDependencies"] if native else {})
    return {alias: package.removeprefix("npm:") for alias, package in wanted.items()}


def install(say: Say | None = None) -> Mapping[str, Path]:
    """The executable of every pinned alias, installed first when needed.

    `say` gets one line for each thing that takes time; by default they go to stderr.
    Raises `InstallError` when npm is missing, fails, or brings no executable for this platform.
    """
    tell = say or _to_stderr
    tree = TREES / fingerprint()
    if missing(tree):
        TREES.mkdir(exist_ok=True)
        with _sole_installer(tell):
            if missing(tree):
                _fill(tree, tell)
    return {alias: found for alias in pinned() if (found := executable(tree, alias))}


def fingerprint() -> str:
    """16 hex digits that change with the pins, the lock file, the system and the machine type."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
    for name in PINS:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def executable(tree: Path, alias: str) -> Path | None:
    """The executable of `alias` in an installed tree, None when it is not there.

    npm puts the platform package of one version at the top and that of the other below its own alias.
    """
    package, _, version = pinned()[alias].rpartition("@")
    pattern = PROGRAMS[package].format(alias=alias)
    top = tree / "node_modules"
    for modules in (top / alias / "node_modules", top):
        for program in sorted(modules.glob(pattern)):
            depth = 2 if pattern.startswith("@") else 1
            folder = modules.joinpath(*program.relative_to(modules).parts[:depth])
            if _version(folder) == version and os.access(program, os.X_OK):
                return program
    return None


def missing(tree: Path) -> list[str]:
    """The aliases that have no executable in the tree."""
    return [alias for alias in pinned() if executable(tree, alias) is None]


def _version(folder: Path) -> str:
    """The version of a package, without the platform that some makers add to it."""
    manifest: dict[str, str] = json.loads((folder / "package.json").read_text())
    return manifest["version"].partition("-")[0]


def _fill(tree: Path, say: Say) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError(f"npm is not on PATH: install Node 20 or newer to test {', '.join(pinned())}")
    say(f"installing {', '.join(pinned().values())} from npm (about 400 MB to fetch, 1 GB on disk) ...")
    started = time.monotonic()
    part = tree.with_suffix(".part")
    _clear(part)
    _npm_ci(npm, part)
    if absent := missing(part):
        raise InstallError(f"npm brought no executable of {', '.join(absent)} for {platform.platform()}")
    _clear(*(each for each in TREES.iterdir() if each.is_dir() and each != part))
    part.rename(tree)
    say(f"installed in {time.monotonic() - started:.1f} s: {tree}")


def _npm_ci(npm: str, folder: Path) -> None:
    folder.mkdir()
    for name in (*PINS, ".npmrc"):
        shutil.copy(HERE / name, folder / name)
    try:
        done = subprocess.run(
            [npm, "ci", "--loglevel=error"],
            check=False,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=NPM_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"npm ci did not end within {NPM_SECONDS} s") from None
    if done.returncode != 0:
        raise InstallError(f"npm ci failed with exit {done.returncode}: {_last_lines(done.stdout)}")


def _last_lines(output: str) -> str:
    lines = [line.removeprefix("npm error ") for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-6:])


def _clear(*folders: Path) -> None:
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)


@contextmanager
def _sole_installer(say: Say) -> Generator[None]:
    with (TREES / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is installing the CLIs under test: waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """Install, print `alias path` per executable on stdout; returns the exit status."""
    try:
        found = install()
    except InstallError as error:
        _to_stderr(f"the CLIs under test are not installed: {error}")
        return 1
    sys.stdout.writelines(f"{alias} {path}\n" for alias, path in found.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())

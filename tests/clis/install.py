"""Programs for the tests, installed from npm by the lock file of a folder; `CLIS` are the real CLIs of this one.

`install` gives the executable of each pinned alias of `package.json`. The packages land in
`node_modules/<fingerprint>/` beside it, where the fingerprint covers the pins, the lock file and the platform:

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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETTINGS = HERE / ".npmrc"
PINS = ("package.json", "package-lock.json")
NPM_SECONDS = 600

Say = Callable[[str], None]


class InstallError(Exception):
    """A pinned program can not be had on this machine; the text says why and what to do."""


@dataclass(frozen=True)
class Pins:
    """The pins in `folder`, and what they take: its `size`, in words.

    `programs`: where the program of a package is, seen from the folder that npm has put it or its platform package in.
    `unpack` makes executables in a tree that npm has filled, of packages that bring them packed.
    """

    folder: Path
    programs: Mapping[str, str]
    size: str
    unpack: Callable[[Path], None] = lambda tree: None

    @property
    def trees(self) -> Path:
        """The folder of the installed trees."""
        return self.folder / "node_modules"

    def pinned(self) -> dict[str, str]:
        """Each alias of `package.json` with its exact npm package: `claude-2.1.330` → `@anthropic-ai/claude-code@2.1.330`.

        Optional ones are packages of one platform, Linux on x86-64.
        """
        manifest: dict[str, dict[str, str]] = json.loads((self.folder / "package.json").read_text())
        native = (platform.system(), platform.machine()) == ("Linux", "x86_64")
        wanted = manifest.get("dependencies", {}) | (manifest["optionalDependencies"] if native else {})
        return {alias: package.removeprefix("npm:") for alias, package in wanted.items()}

    def install(self, say: Say | None = None) -> Mapping[str, Path]:
        """The executable of every pinned alias, installed first when needed.

        `say` gets one line for each thing that takes time; by default they go to stderr.
        Raises `InstallError` when npm is missing, fails, or brings no executable for this platform.
        """
        tell = say or _to_stderr
        tree = self.trees / self.fingerprint()
        if self.missing(tree):
            self.trees.mkdir(exist_ok=True)
            with _sole_installer(self.trees, tell):
                if self.missing(tree):
                    self._fill(tree, tell)
        return {alias: found for alias in self.pinned() if (found := self.executable(tree, alias))}

    def fingerprint(self) -> str:
        """16 hex digits that change with the pins, the lock file, the system and the machine type."""
        digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
        for name in PINS:
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()[:16]

    def executable(self, tree: Path, alias: str) -> Path | None:
        """The executable of `alias` in an installed tree, None when it is not there.

        npm puts the platform package of one version at the top and that of the other below its own alias.
        """
        package, _, version = self.pinned()[alias].rpartition("@")
        pattern = self.programs[package].format(alias=alias)
        top = tree / "node_modules"
        for modules in (top / alias / "node_modules", top):
            for program in sorted(modules.glob(pattern)):
                depth = 2 if pattern.startswith("@") else 1
                folder = modules.joinpath(*program.relative_to(modules).parts[:depth])
                if _version(folder) == version and os.access(program, os.X_OK):
                    return program
        return None

    def missing(self, tree: Path) -> list[str]:
        """The aliases that have no executable in the tree."""
        return [alias for alias in self.pinned() if self.executable(tree, alias) is None]

    def _fill(self, tree: Path, say: Say) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise InstallError(
                f"npm is not on PATH: install Node 20 or newer to test {', '.join(self.pinned())}"
            )
        say(f"installing {', '.join(self.pinned().values())} from npm ({self.size}) ...")
        started = time.monotonic()
        part = tree.with_suffix(".part")
        _clear(part)
        self._npm_ci(npm, part)
        self.unpack(part)
        if absent := self.missing(part):
            raise InstallError(f"npm brought no executable of {', '.join(absent)} for {platform.platform()}")
        _clear(*(each for each in self.trees.iterdir() if each.is_dir() and each != part))
        part.rename(tree)
        say(f"installed in {time.monotonic() - started:.1f} s: {tree}")

    def _npm_ci(self, npm: str, part: Path) -> None:
        part.mkdir()
        for path in (*(self.folder / name for name in PINS), SETTINGS):
            shutil.copy(path, part / path.name)
        run([npm, "ci", "--loglevel=error"], part)


def run(command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a step of an installation in `folder`. Raises `InstallError`."""
    what = " ".join((Path(command[0]).name, *command[1:2]))
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=NPM_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{what} did not end within {NPM_SECONDS} s") from None
    if done.returncode != 0:
        raise InstallError(f"{what} failed with exit {done.returncode}: {_last_lines(done.stdout)}")


CLIS = Pins(
    HERE,
    {
        "@anthropic-ai/claude-code": "@anthropic-ai/claude-code-*/claude",
        "@agentclientprotocol/codex-acp": "{alias}/dist/index.js",
        "@google/gemini-cli": "{alias}/bundle/gemini.js",
        "@openai/codex": "@openai/codex-*/vendor/*/bin/codex",
        "opencode-linux-x64": "{alias}/bin/opencode",
    },
    "about 400 MB to fetch, 1 GB on disk",
)
"""The real CLIs under test."""


def _version(folder: Path) -> str:
    """The version of a package, without the platform that some makers add to it."""
    manifest: dict[str, str] = json.loads((folder / "package.json").read_text())
    return manifest["version"].partition("-")[0]


def _last_lines(output: str) -> str:
    lines = [line.removeprefix("npm error ") for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-6:])


def _clear(*folders: Path) -> None:
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)


@contextmanager
def _sole_installer(trees: Path, say: Say) -> Generator[None]:
    with (trees / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is installing them: waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """Install, print `alias path` per executable on stdout; returns the exit status."""
    try:
        found = CLIS.install()
    except InstallError as error:
        _to_stderr(f"the CLIs under test are not installed: {error}")
        return 1
    sys.stdout.writelines(f"{alias} {path}\n" for alias, path in found.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())

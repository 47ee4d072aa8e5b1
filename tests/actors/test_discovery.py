from __future__ import annotations

import platform
from pathlib import Path

import attrs
import pytest

from proctor.actors.errors import NotExecutable, NotInstalled, VersionCheckFailed
from proctor.actors.plan.discovery import CLAUDE_CODE, CODEX_CLI, Product, find_program, version


def program(path: Path, text: str = "#!/bin/sh\necho '2.1.330 (Claude Code)'\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return attrs.evolve(CLAUDE_CODE, places=(str(tmp_path / "known"),))


@pytest.mark.covers("R022")
def test_the_explicit_path_wins(tmp_path: Path, product: Product) -> None:
    explicit = program(tmp_path / "mine" / "claude")
    program(tmp_path / "path" / "claude")
    environ = {"PATH": str(tmp_path / "path"), "PROCTOR_CLAUDE": str(tmp_path / "none")}
    assert find_program(product, explicit, environ) == explicit


@pytest.mark.covers("R022")
def test_then_the_variable(tmp_path: Path, product: Product) -> None:
    named = program(tmp_path / "named" / "claude")
    program(tmp_path / "path" / "claude")
    environ = {"PATH": str(tmp_path / "path"), "PROCTOR_CLAUDE": str(named)}
    assert find_program(product, None, environ) == named


@pytest.mark.covers("R022")
def test_then_the_path(tmp_path: Path, product: Product) -> None:
    on_path = program(tmp_path / "path" / "claude")
    program(tmp_path / "known" / "claude")
    assert find_program(product, None, {"PATH": str(tmp_path / "path")}) == on_path


@pytest.mark.covers("R022")
def test_then_the_usual_places(tmp_path: Path, product: Product) -> None:
    known = program(tmp_path / "known" / "claude")
    assert find_program(product, None, {"PATH": ""}) == known


@pytest.mark.covers("R023", "R028")
def test_nowhere_names_every_place_and_how_to_install_it(tmp_path: Path, product: Product) -> None:
    with pytest.raises(NotInstalled) as caught:
        find_program(product, None, {"PATH": "/nowhere"})
    text = str(caught.value)
    for part in ("PROCTOR_CLAUDE", "on PATH (/nowhere)", f"{tmp_path}/known/claude", "npm install -g"):
        assert part in text
    assert "\n" not in text


@pytest.mark.covers("R022")
def test_an_explicit_path_that_is_not_there_is_not_looked_for_elsewhere(
    tmp_path: Path, product: Product
) -> None:
    program(tmp_path / "path" / "claude")
    with pytest.raises(NotInstalled, match="the path given"):
        find_program(product, tmp_path / "gone", {"PATH": str(tmp_path / "path")})


@pytest.mark.covers("R025")
def test_a_directory_and_a_file_without_permission_are_told_apart(tmp_path: Path, product: Product) -> None:
    with pytest.raises(NotExecutable, match="it is a directory"):
        find_program(product, tmp_path)
    with pytest.raises(NotExecutable, match="no execute permission"):
        find_program(product, program(tmp_path / "plain", mode=0o644))


async def test_the_version_is_three_numbers(tmp_path: Path) -> None:
    assert await version(program(tmp_path / "claude")) == (2, 1, 330)


@pytest.mark.covers("R025", "R026")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho nonsense\n", "exit status 0, expected a version; it printed 'nonsense"),
        ("#!/bin/sh\necho broken >&2; exit 3\n", "exit status 3, expected a version; it printed 'broken"),
        ("no interpreter line, not a program", "cannot be started"),
    ],
)
async def test_nonsense_for_a_version_is_shown(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(VersionCheckFailed, match=why):
        await version(program(tmp_path / "claude", text))


async def test_a_version_check_that_hangs_is_given_up(tmp_path: Path) -> None:
    slow = program(tmp_path / "claude", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(VersionCheckFailed, match=r"no answer within 0\.2 s"):
        await version(slow, timeout=0.2)


def codex_package(root: Path, place: str) -> tuple[Path, Path]:
    """npm's launcher on PATH, and the native program it would start, at this place seen from its package."""
    package = root / "lib" / "node_modules" / "@openai" / "codex"
    launcher = program(package / "bin" / "codex.js", "#!/usr/bin/env node\n")
    (root / "bin").mkdir()
    (root / "bin" / "codex").symlink_to(launcher)
    return launcher, program((package / place).resolve())


@pytest.mark.parametrize("place", range(4))
def test_the_native_program_is_taken_from_beside_its_launcher(tmp_path: Path, place: int) -> None:
    machine = f"{platform.system()} {platform.machine()}".lower()
    _, native = codex_package(tmp_path, CODEX_CLI.native[machine][place])
    assert find_program(CODEX_CLI, None, {"PATH": str(tmp_path / "bin")}) == native
    assert find_program(CODEX_CLI, tmp_path / "bin" / "codex", {}) == native


def test_a_launcher_without_its_native_program_is_run_as_it_is(tmp_path: Path) -> None:
    codex_package(tmp_path, "../elsewhere/codex")
    assert find_program(CODEX_CLI, None, {"PATH": str(tmp_path / "bin")}) == tmp_path / "bin" / "codex"


def test_a_program_that_is_no_launcher_is_taken_as_it_is(tmp_path: Path) -> None:
    own = program(tmp_path / "bin" / "codex")
    assert find_program(CODEX_CLI, None, {"PATH": str(tmp_path / "bin")}) == own


@pytest.mark.covers("L26")
@pytest.mark.parametrize("suffix", [".cmd", ".bat", ".ps1"])
def test_a_batch_file_is_never_taken_for_the_program(tmp_path: Path, product: Product, suffix: str) -> None:
    shim = program(tmp_path / "path" / f"claude{suffix}")
    program(tmp_path / "known" / f"claude{suffix}")
    environ = {"PATH": str(tmp_path / "path"), "PATHEXT": ".EXE;.CMD;.BAT;.PS1"}
    with pytest.raises(NotInstalled):
        find_program(product, None, environ)
    for named in (shim, None):
        with pytest.raises(NotExecutable, match="it is a batch file"):
            find_program(product, named, environ if named else {**environ, "PROCTOR_CLAUDE": str(shim)})
    native = program(tmp_path / "known" / "claude")
    assert find_program(product, None, environ) == native

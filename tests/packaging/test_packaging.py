"""What packaging promises: one import name over three folders, in a checkout, an archive and an installed wheel.

Nothing here needs an index: the backend is installed already, and a fresh environment borrows the dependencies of
the one that runs the tests by a .pth file, which does not carry this checkout's own editable install along.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.house.tree import FLOORS, ROOT, sources
from tests.workers import shared_folder

FACE = ROOT / "src" / "proctor"
SHOW = "import proctor, proctor.runtime, proctor.actors, proctor.protocols; print(proctor.__file__)"
NOT_SOURCE = shutil.ignore_patterns(*(ROOT / ".gitignore").read_text().replace("/", "").split(), ".git")


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def sh(*argv: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def place(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    folder = shared_folder(pytestconfig, tmp_path_factory) / "packaging"
    folder.mkdir(exist_ok=True)
    return folder


def once(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder, which the first worker that needs it makes while the others wait."""
    made = folder.with_suffix(".made")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            make(folder)
            made.touch()
    return folder


def build(source: Path, into: Path, *kinds: str) -> Path:
    def make(folder: Path) -> None:
        sh(
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            *kinds,
            "--outdir",
            folder,
            source,
            cwd=into.parent,
        )

    [built] = once(into, make).iterdir()
    return built


@pytest.fixture(scope="module")
def checkout(place: Path) -> Path:
    """A copy of the sources that no other developer's edit can change half-way."""
    return once(
        place / "checkout", lambda copy: shutil.copytree(ROOT, copy, symlinks=True, ignore=NOT_SOURCE)
    )


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    return build(checkout, checkout.parent / "sdist", "--sdist")


@pytest.fixture(scope="module")
def straight_wheel(checkout: Path) -> Path:
    return build(checkout, checkout.parent / "straight", "--wheel")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel a user gets: built from the unpacked source archive."""

    def unpack(folder: Path) -> None:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")

    [unpacked] = once(sdist.parent.parent / "unpacked", unpack).iterdir()
    return build(unpacked, sdist.parent.parent / "wheel", "--wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The Python of a fresh environment that has the wheel, and the dependencies by reference."""

    def make(home: Path) -> None:
        venv.create(home, symlinks=True)
        pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python")
        sh(*pip, "install", "-q", "--no-deps", "--no-index", wheel, cwd=home)
        [site] = home.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    return once(wheel.parent.parent / "fresh", make) / "bin" / "python"


def shipped() -> set[str]:
    """The name inside a wheel of every Python file of the library, and of every file of the web page."""
    page = (path for path in (ROOT / "actors/gateways/http/page").rglob("*") if path.is_file())
    parts = (path.relative_to(ROOT).parts for path in (*sources(), *page))
    return {"/".join(p[1:] if p[0] == "src" else ("proctor", *p)) for p in parts}


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_is_linked_into_the_face(name: str) -> None:
    link = FACE / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", name)
    assert (link / "__init__.py").samefile(ROOT / name / "__init__.py")


def test_every_linked_folder_is_named_to_pyright() -> None:
    links = {f"src/proctor/{path.name}" for path in FACE.iterdir() if path.is_symlink()}
    assert links == {f"src/proctor/{name}" for name in FLOORS}
    assert links <= set(settings()["tool"]["pyright"]["include"])


def test_every_folder_of_code_at_the_top_is_a_floor() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == set(FLOORS)


def test_the_editable_install_is_this_checkout(tmp_path: Path) -> None:
    assert sh(sys.executable, "-c", SHOW, cwd=tmp_path).strip() == str(FACE / "__init__.py")


def test_the_version_is_said_once() -> None:
    version = settings()["project"]["version"]
    assert importlib.metadata.version("proctor") == version
    said = re.compile(rf"""version\w*\s*=\s*["']{re.escape(version)}["']""")
    assert [path for path in sources() if said.search(path.read_text())] == []


@pytest.mark.parametrize("kind", ["wheel", "straight_wheel"])
def test_a_wheel_holds_each_file_once(kind: str, request: pytest.FixtureRequest, checkout: Path) -> None:
    with zipfile.ZipFile(request.getfixturevalue(kind)) as archive:
        names = Counter(archive.namelist())
    in_copy = {name for name in shipped() if (checkout / "src" / name).exists()}
    assert [name for name, times in names.items() if times > 1] == []
    assert {*names} >= in_copy
    assert "proctor/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"proctor", _dist_info(names)}


def _dist_info(names: Counter[str]) -> str:
    return next(name.split("/")[0] for name in names if name.endswith("/METADATA"))


def test_both_wheels_hold_the_same(wheel: Path, straight_wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as a, zipfile.ZipFile(straight_wheel) as b:
        assert sorted(a.namelist()) == sorted(b.namelist())


def test_the_source_archive_holds_plain_files_and_all_that_make_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members]
    assert [member.name for member in members if not member.isfile()] == []
    assert len(set(names)) == len(names)
    assert {
        "pyproject.toml",
        "Makefile",
        "constraints.txt",
        "LICENSE",
        "src/proctor/runtime/__init__.py",
        "src/proctor/actors/gateways/http/page/index.html",
    } <= set(names)
    assert [
        name
        for name in names
        if name.startswith(("tests/house/", "tests/packaging/", "build/")) or "node_modules" in name
    ] == []


def test_an_installed_wheel_imports_from_anywhere(installed: Path, tmp_path: Path) -> None:
    where = Path(sh(installed, "-c", SHOW, cwd=tmp_path, PYTHONPATH="").strip())
    assert where.is_relative_to(installed.parent.parent)


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_is_no_package_of_its_own(name: str, installed: Path, tmp_path: Path) -> None:
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is not None)"
    sh(installed, "-c", find, cwd=tmp_path, PYTHONPATH="")
    sh(sys.executable, "-c", find, cwd=tmp_path, PYTHONPATH="")


def test_every_module_of_an_installed_wheel_imports(installed: Path, tmp_path: Path) -> None:
    loop = (
        "import importlib, pkgutil, proctor\n"
        "for module in pkgutil.walk_packages(proctor.__path__, 'proctor.'):\n"
        "    module.name.endswith('__main__') or importlib.import_module(module.name)\n"
    )
    sh(installed, "-W", "error", "-c", loop, cwd=tmp_path, PYTHONPATH="")


def test_a_checkout_that_lost_its_links_still_imports(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkout, copy, symlinks=True)
    for name in FLOORS:
        (copy / "src" / "proctor" / name).unlink()
    where = sh(
        sys.executable,
        "-c",
        f"{SHOW}; print(proctor.runtime.__file__)",
        cwd=tmp_path,
        PYTHONPATH=str(copy / "src"),
    )
    assert where.split() == [str(copy / "src/proctor/__init__.py"), str(copy / "runtime/__init__.py")]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_git_archive_keeps_the_links(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkout, copy, symlinks=True)
    who = ("-c", "user.name=proctor", "-c", "user.email=proctor@example.org")
    sh("git", "init", "-q", cwd=copy)
    sh("git", "add", ".", cwd=copy)
    sh("git", *who, "commit", "-q", "--no-verify", "-m", "all", cwd=copy)
    sh("git", "archive", "--output", tmp_path / "all.tar", "HEAD", cwd=copy)
    with tarfile.open(tmp_path / "all.tar") as archive:
        links = {member.name: member.linkname for member in archive if member.issym()}
    assert links == {f"src/proctor/{name}": f"../../{name}" for name in FLOORS}

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actors.errors import BadOption
from proctor.actors.serving.allowed_dirs import AllowedDirs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("allowed/inner", "second", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "allowed/file").touch()
    (tmp_path / "allowed/out").symlink_to(tmp_path / "secret")
    (tmp_path / "allowed/in").symlink_to("inner")
    (tmp_path / "allowed/circle").symlink_to("circle")
    (tmp_path / "allowed2").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, "allowed"),
        ("", "allowed"),
        ("inner", "allowed/inner"),
        ("inner/..", "allowed"),
        ("in", "allowed/inner"),
        ("{tree}/second", "second"),
        ("{tree}/allowed/inner", "allowed/inner"),
    ],
)
def test_a_folder_below_a_root_is_given_without_links(tree: Path, wanted: str | None, found: str) -> None:
    roots = AllowedDirs([tree / "allowed", tree / "second"])
    assert roots.folder(wanted and wanted.format(tree=tree)) == (tree / found).resolve()


@pytest.mark.parametrize(
    "wanted", ["..", "../secret", "/", "out", "out/..", "{tree}/allowed2", "{tree}/allowed/../secret", "~"]
)
def test_what_leads_out_is_refused_and_says_what_is_allowed(tree: Path, wanted: str) -> None:
    with pytest.raises(BadOption, match="cwd"):
        AllowedDirs([tree / "allowed"]).folder(wanted.format(tree=tree))


@pytest.mark.parametrize("wanted", ["file", "circle", "nowhere", "a\0b", "x" * 5000])
def test_what_is_no_folder_is_refused(tree: Path, wanted: str) -> None:
    with pytest.raises(BadOption, match="cwd"):
        AllowedDirs([tree / "allowed"]).folder(wanted)


def test_a_root_is_a_folder_that_is_there(tree: Path) -> None:
    with pytest.raises(BadOption, match="root"):
        AllowedDirs([tree / "nowhere"])
    with pytest.raises(BadOption, match="at least one"):
        AllowedDirs([])

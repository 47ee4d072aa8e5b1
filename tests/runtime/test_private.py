"""Files and directories of this user alone, made in a process with a umask of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from stat import S_IMODE

import pytest

from proctor.runtime.processes.private import make_directory, open_private

MAKES = """
import os, stat, sys
from pathlib import Path
from proctor.runtime.processes.private import make_directory, make_temporary_directory, open_private

for umask in sys.argv[2:]:
    root = Path(sys.argv[1]) / umask
    root.mkdir()
    os.umask(int(umask, 8))
    make_directory(root / "a" / "b" / "c", parents=True)
    os.close(open_private(root / "a" / "b" / "file", os.O_RDWR))
    os.close(open_private(root / "a" / "b" / "fresh", os.O_RDWR | os.O_EXCL))
    make_temporary_directory("x-", root / "a")
    os.umask(0o022)
    print(umask, *sorted(stat.filemode(path.lstat().st_mode) for path in root.rglob("*")))
"""


def test_what_is_made_is_private_under_any_umask(tmp_path: Path) -> None:
    umasks = ("000", "022", "077", "777")
    done = subprocess.run(
        [sys.executable, "-c", MAKES, str(tmp_path), *umasks], capture_output=True, text=True, check=True
    )
    private = ["-rw-------"] * 2 + ["drwx------"] * 4
    assert [line.split() for line in done.stdout.splitlines()] == [[umask, *private] for umask in umasks]


def test_what_is_there_keeps_its_mode_and_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o644)
    (tmp_path / "folder").mkdir(mode=0o755)
    os.close(open_private(tmp_path / "file", os.O_RDWR))
    make_directory(tmp_path / "folder", exist_ok=True)
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "file", exist_ok=True)
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "folder")
    with pytest.raises(FileExistsError):
        open_private(tmp_path / "file", os.O_RDWR | os.O_EXCL)
    with pytest.raises(FileNotFoundError):
        make_directory(tmp_path / "none" / "below")
    assert [S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.iterdir())] == [0o644, 0o755]

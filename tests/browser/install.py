"""The Chromium in which the tests open the web page, installed from npm by this folder's lock file.

The npm package carries it packed, for machines that have none of its libraries; it is unpacked into the tree, once.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.clis.install import InstallError, Pins, run

ALIAS = "chromium-147.0.0"
UNPACKED = "unpacked"
# by the package itself, which unpacks into the folder for temporary files, the libraries only where it seems to be on AWS
UNPACK = f"import chromium from '{ALIAS}'; await chromium.executablePath();"
SEEMS = {"AWS_EXECUTION_ENV": "AWS_Lambda_nodejs20.x"}


def _unpack(tree: Path) -> None:
    node = shutil.which("node")
    if node is None:
        raise InstallError("node is not on PATH: install Node 20 or newer")
    folder = tree / "node_modules" / ALIAS / UNPACKED
    folder.mkdir()
    env = {**os.environ, **SEEMS, "TMPDIR": str(folder)}
    run([node, "--input-type=module", "--eval", UNPACK], tree, env)


CHROMIUM = Pins(
    Path(__file__).resolve().parent,
    {"@sparticuz/chromium": f"{{alias}}/{UNPACKED}/chromium"},
    "about 70 MB to fetch, 270 MB on disk",
    _unpack,
)


def libraries(executable: Path) -> Path:
    """The folder of the libraries that it brings."""
    return executable.parent / "al2023" / "lib"


def fonts(executable: Path) -> Path:
    """The folder of the fonts that it brings: the page looks the same on each machine."""
    return executable.parent / "fonts"
